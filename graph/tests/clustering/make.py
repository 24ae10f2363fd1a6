"""Expected clusterings from scipy: `python3 make.py > scipy.json` (scipy 1.17.1, numpy 2.4.6)."""

import itertools, json, random
import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage


def lcs(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def path_distance(p, q):
    return (max(len(p), len(q)) - lcs(p, q)) / max(len(p), len(q))


def unit_distance(x, y):
    return sum(path_distance(p, q) for p in x for q in y) / (len(x) * len(y))


def case(distances, n, units=None):
    condensed = np.array(distances)
    assert len(set(np.round(condensed, 9))) == len(condensed), "ties: another seed"
    methods = {}
    for method in ("single", "complete", "average"):
        merges = linkage(condensed, method)
        # Cut halfway between merges, where rounding decides nothing.
        heights = sorted({0.0, *merges[:, 2]})
        cuts = [(a + b) / 2 for a, b in itertools.pairwise(heights)]
        cuts = cuts[:: max(1, len(cuts) // 4)]
        flat = [{"at": t, "labels": fcluster(merges, t, "distance").tolist()} for t in cuts]
        methods[method] = {"merges": merges.tolist(), "flat": flat}
    return {"n": n, "units": units, "distances": condensed.tolist(), "methods": methods}


def main():
    draw = random.Random(20260722)
    cases = []
    for n in (2, 3, 5, 9, 17, 24):
        values = draw.sample(range(1, 100000), n * (n - 1) // 2)
        cases.append(case([v / 100000 for v in values], n))
    for n in (6, 12):
        units = [
            sorted({"".join(draw.choice("ABCDEFGH") for _ in range(draw.randint(3, 17))) for _ in range(draw.randint(3, 5))})
            for _ in range(n)
        ]
        pairs = itertools.combinations(units, 2)
        cases.append(case([unit_distance(x, y) for x, y in pairs], n, units))
    print(json.dumps(cases, separators=(",", ":")).replace('{"n"', '\n{"n"'))


main()
