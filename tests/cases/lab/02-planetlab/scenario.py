"""Writes the scenario: 32 sites with the one-way delays of delays.txt, and calls between them.

delays.txt has a line for each site: the microseconds to each site after it. They are half of
round trips between PlanetLab hosts (NetLatency-Data, MIT licence).
"""

import pathlib

HEAD = """length = "40 s"
[routing]
metric = "expected-latency"
formula = "paper"
[hello]
interval = "1 s"
dead_after = "10 s"
probes = false
loss = "intervals"
[realtime]
recovery = "once"
"""
# The site that each of the first 31 sites calls.
CALLED = (
    11, 6, 15, 24, 6, 8, 1, 25, 12, 21, 29, 13, 10, 30, 21, 17,
    19, 31, 0, 22, 28, 24, 8, 5, 26, 20, 13, 31, 4, 18, 19,
)  # fmt: skip


def main() -> None:
    lines = pathlib.Path(__file__).with_name("delays.txt").read_text(encoding="ascii").splitlines()
    print(HEAD, end="")
    for site in range(len(lines) + 1):
        print(f'[[host]]\nname = "h{site}"')
    for site, line in enumerate(lines):
        for other, delay in enumerate(line.split(), site + 1):
            between = f'[[link]]\nbetween = ["h{site}","h{other}"]'
            print(f'{between}\nplain = true\ndelay = "{delay}us"\nloss = "5%"\n{between}')
    for site, called in enumerate(CALLED):
        for name, service in (("real", "real-time"), ("plain", "plain")):
            print(f'[[call]]\nname = "{name}-{site}"\nfrom = "h{site}"\nto = "h{called}"\ncount = 4')
            print(f'service = "{service}"\nthreshold = "120ms"')


if __name__ == "__main__":
    main()
