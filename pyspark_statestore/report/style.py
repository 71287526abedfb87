"""The look of all pages: light and dark, narrow and wide, on paper."""

from __future__ import annotations

SHEET = """
:root{color-scheme:light dark;--bg:#fff;--ink:#1a2227;--soft:#56636c;--line:#d8dee2;--card:#f4f6f7;--code:#eaeef0;
--live:#2a7f62;--dead:#d1603d;--rest:#a9b3b9;--plain:#4c78a8;--act:#b3261e;--look:#8a5a00;--fine:#23704f;
--seen:#7d5fb2;--low:#8fb6dd;--less:#c6daec;--even:#dfe5e8;--more:#f3cfae;--skewed:#e58a6a}
@media (prefers-color-scheme:dark){:root{--bg:#12171a;--ink:#e4e9ec;--soft:#9dabb4;--line:#2f3a41;--card:#1b2327;
--code:#263036;--live:#46a683;--dead:#e07a55;--rest:#64717a;--plain:#79a3d0;--act:#ff8f84;--look:#e3b253;
--fine:#66c79f;--seen:#a78bd8;--low:#2f6196;--less:#284760;--even:#323e45;--more:#6d4a30;--skewed:#a84a2b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1rem 1rem 3rem;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:1.6rem;line-height:1.2;margin:.6rem 0 .2rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
h3{font-size:1rem;margin:0 0 .3rem}
p{margin:.3rem 0;max-width:60rem}
.url,.small{color:var(--soft);font-size:.87rem;overflow-wrap:anywhere}
.url,code,pre,td.name{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
.verdict{font-size:1.05rem;margin:.7rem 0 1rem}
.charts,.cards{display:grid;gap:.75rem}
.tiles{display:flex;flex-wrap:wrap;--gap:.75rem;gap:var(--gap)}
.tile{flex:1 1 calc(100%/var(--beside) - var(--gap));--beside:var(--wide)}
.charts{grid-template-columns:repeat(auto-fit,minmax(min(30rem,100%),1fr));max-width:100%}
.charts>:last-child:nth-child(odd){grid-column:1/-1}
.tile,.chart,.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.7rem .85rem;
min-width:0;margin:0;break-inside:avoid}
.tile b{display:block;font-size:1.45rem;line-height:1.25;font-weight:650;overflow-wrap:anywhere}
.tile span{display:block;overflow-wrap:anywhere;color:var(--soft);font-size:.83rem;line-height:1.35}
.tile.act{border-left:.3rem solid var(--act)}.tile.act b{color:var(--act)}
.tile.fine{border-left:.3rem solid var(--fine)}
.card{border-left:.3rem solid var(--line)}
.card.act{border-left-color:var(--act)}.card.look{border-left-color:var(--look)}.card.fine{
border-left-color:var(--fine)}
.level{font-size:.72rem;font-weight:700;letter-spacing:.05em;text-transform:uppercase;margin-right:.5rem}
.act .level{color:var(--act)}.look .level{color:var(--look)}.fine .level{color:var(--fine)}
pre{margin:.45rem 0 0;padding:.5rem .65rem;background:var(--code);border-radius:.35rem;overflow-x:auto;
font-size:.85rem;
line-height:1.45;user-select:all;-webkit-user-select:all}
code{background:var(--code);border-radius:.25rem;padding:0 .25rem;font-size:.9em}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem}
table{border-collapse:collapse;width:100%;font-size:.87rem}
th,td{padding:.32rem .55rem;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:top}
tr:last-child td{border-bottom:0}
th{color:var(--soft);font-weight:600;background:var(--card)}
.number{text-align:right;font-variant-numeric:tabular-nums}
td.wide{white-space:normal;min-width:16rem}
td.name{overflow-wrap:anywhere;font-size:.82rem}
.bar{display:flex;height:.75rem;min-width:5rem;background:var(--code);border-radius:.2rem;overflow:hidden;
margin-top:.28rem}
.bar i{display:block;height:100%}
.bar.tall{height:1.5rem;border-radius:.35rem;margin:.3rem 0 .5rem}
.live{background:var(--live);fill:var(--live)}.dead{background:var(--dead);fill:var(--dead)}
.rest{background:var(--rest);fill:var(--rest)}.plain{background:var(--plain);fill:var(--plain)}
.low{background:var(--low)}.less{background:var(--less)}.even{background:var(--even)}.more{background:var(--more)}
.skewed{background:var(--skewed)}
.legend{display:flex;flex-wrap:wrap;gap:.15rem 1rem;font-size:.83rem;color:var(--soft);margin:.2rem 0}
.legend i{display:inline-block;
width:.75rem;height:.75rem;border-radius:.15rem;margin-right:.35rem;vertical-align:-.08rem}
svg{display:block;width:100%;height:auto;max-height:22rem;overflow:visible}
svg text{fill:var(--soft);font-size:11px}
svg .grid{stroke:var(--line);stroke-width:1}
svg .line{fill:none;stroke-width:2}svg .line.plain{stroke:var(--plain)}svg .line.seen{stroke:var(--seen)}
svg .hover{fill:transparent}svg .hover:hover{fill:var(--ink);fill-opacity:.12}
.map{display:flex;flex-wrap:wrap;gap:2px;margin:.5rem 0}
.cell{width:2.2rem;height:1.7rem;line-height:1.7rem;text-align:center;font-style:normal;font-size:.75rem;
border-radius:.2rem}
.dense .cell{width:1rem;height:1rem}
@media (max-width:60rem){.tile{--beside:var(--middle)}}
footer{margin-top:2.5rem;border-top:1px solid var(--line);padding-top:.7rem}
@media (max-width:30rem){body{padding:.6rem .7rem 2rem}.tiles{--gap:.5rem}.tile{--beside:var(--narrow)}
svg text{font-size:16px}.tile{padding:.55rem .65rem}.tile b{font-size:1.2rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere}.figures thead{display:none}
.figures tr{display:grid;grid-template-columns:1fr auto;border-bottom:1px solid var(--line)}.figures td{border:0}
.figures td.wide{grid-column:1/-1;padding-top:0;color:var(--soft)}}
@media print{body{max-width:none;font-size:12px}table{font-size:9px}td.name{min-width:9rem;font-size:8px}
.scroll{overflow:visible;border:0}th,td,td.name{white-space:normal;
padding:.2rem .4rem}pre{white-space:pre-wrap;overflow-wrap:anywhere}h2{break-after:avoid}tr{break-inside:avoid}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""
