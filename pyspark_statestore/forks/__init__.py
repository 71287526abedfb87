"""A second checkpoint that begins where a first one is, and shares its state: forks, and the pins that protect them."""
