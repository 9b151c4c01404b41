"""Try many cases by hand: `python tests/fuzz/long.py --cases 20000`.

Prints a summary by kind, and writes every find into a file with what it was, how it ended and how
to try it again: `python tests/fuzz/long.py --again experiment:0:17`.
"""

import argparse
import json
import sys
import time as clock
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from driving import Name, Tried, attempt_all

SHARES = {
    "experiment": 0.27, "command": 0.22, "table": 0.13, "proof": 0.1, "python": 0.25, "store": 0.03,
}  # fmt: skip
"""How many of the cases are of each kind."""


def names(cases: int, seed: int, only: str | None = None) -> list[Name]:
    """The cases of a seed, kinds mixed, so that all workers have the same work."""
    shares = SHARES if only is None else {only: 1.0}
    counts = {kind: max(1, round(cases * share)) for kind, share in shares.items()}
    placed = [
        ((number + 0.5) / count, Name(kind, seed, number))
        for kind, count in counts.items()
        for number in range(count)
    ]
    return [name for _, name in sorted(placed)]


def describe(tried: Tried) -> str:
    """A find, in a form that can be repeated."""
    answer = tried.answer
    lines = [
        f"== {tried.name}", *(f"   {fault}" for fault in tried.faults),
        f"   again: python tests/fuzz/long.py --again {tried.name}",
    ]  # fmt: skip
    for part in ("what", "files", "code", "out", "err", "trace"):
        if answer.get(part) not in (None, "", {}):
            lines.append(f"-- {part}\n{answer[part]}")
    return "\n".join(lines) + "\n"


def summary(found: list[Tried]) -> str:
    """How many cases of each kind ended how, and how long they took."""
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    for tried in found:
        ends[tried.name.kind][tried.outcome] += 1
    lines = []
    for kind, counter in ends.items():
        took = sorted(tried.seconds for tried in found if tried.name.kind == kind)
        counts = ", ".join(f"{count} {end}" for end, count in counter.most_common())
        lines.append(
            f"{kind}: {len(took)} cases, {sum(took):.0f} s, longest {took[-1]:.1f} s; {counts}"
        )
    return "\n".join(lines)


def main() -> int:
    """Do as the command line says; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=SHARES, help="cases of one kind")
    parser.add_argument("--again", help="one case, named like experiment:0:17")
    parser.add_argument("--finds", type=Path, default=Path("fuzz-finds.txt"))
    given = parser.parse_args()
    if given.again:
        kind, seed, number = given.again.split(":")
        (tried,) = attempt_all([Name(kind, int(seed), int(number))], 1)
        print(describe(tried))
        return int(bool(tried.faults))
    began, done = clock.perf_counter(), 0

    def tell(tried: Tried) -> None:
        nonlocal done
        done += 1
        if tried.faults:
            with given.finds.open("a") as file:
                file.write(describe(tried))
            print(f"{tried.name}: {tried.faults[0][:200]}", flush=True)
        if done % 500 == 0:
            print(f"{done} cases, {clock.perf_counter() - began:.0f} s", flush=True)

    given.finds.unlink(missing_ok=True)
    found = attempt_all(names(given.cases, given.seed, given.only), given.workers, tell)
    bad = [tried for tried in found if tried.faults]
    slowest = sorted(found, key=lambda tried: -tried.seconds)[:10]
    print(summary(found))
    print("slowest:", json.dumps({str(tried.name): round(tried.seconds, 1) for tried in slowest}))
    print(f"{len(found)} cases, {len(bad)} finds, {clock.perf_counter() - began:.0f} s")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
