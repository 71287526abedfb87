/*
 * The search of a site that is opened from a folder. Browsers start no worker for a page that is a file, so what the
 * theme would run in a worker runs in a hidden frame of the page. From a server, nothing here does anything.
 */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe")
    #waiting = []
    #inside = null

    constructor(url) {
      super()
      this.#frame.hidden = true
      this.#frame.addEventListener("load", () => this.#start(String(url)), { once: true })
      document.body.append(this.#frame)
    }

    postMessage(data) {
      if (this.#inside) {
        this.#inside.dispatchEvent(new MessageEvent("message", { data }))
      } else {
        this.#waiting.push(data)
      }
    }

    terminate() {
      this.#frame.remove()
    }

    #start(url) {
      const inside = this.#frame.contentWindow
      const script = inside.document.createElement("script")
      // What the script tells its page; of a frame, this function would tell the frame itself.
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      script.addEventListener("load", () => {
        this.#inside = inside
        this.#waiting.splice(0).forEach(data => this.postMessage(data))
      })
      script.addEventListener("error", () => this.dispatchEvent(new Event("error")))
      script.src = url
      inside.document.head.append(script)
    }
  }
}
