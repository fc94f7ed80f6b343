"""False alarms and finds of ``is_novel`` at alpha = 1 %, on eight kinds of data and 1 to 20 sites.

    python benchmarks/novelty.py            prints a table (a few minutes on two cores)
    python benchmarks/novelty.py --private  only NodeRelease (epsilon 2): guesses, and distances released for more

"Far" are rows of another cluster, ten standard deviations of the data away in every feature. "Near" are fresh rows
that were moved by ten standard deviations of their own cluster in a random direction; some of them land in other
clusters, where nobody can tell. "Means" is the codebook that `export` gives out.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits, make_moons

from fcac import FCAC
from fcac.privacy import NodeRelease, PrivacyError

N_FRESH = 10_000


def gaussians(d: int) -> Callable[[int, np.random.Generator], np.ndarray]:
    centres = np.random.default_rng(d).normal(size=(8, d)) * 8
    return lambda n, rng: centres[rng.integers(8, size=n)] + rng.normal(size=(n, d))


# how to draw n rows, and the standard deviation inside a cluster
KINDS = {
    "8 Gaussians, d 2": (gaussians(2), 1.0),
    "8 Gaussians, d 10": (gaussians(10), 1.0),
    "8 Gaussians, d 50": (gaussians(50), 1.0),
    "uniform cube, d 3": (lambda n, rng: rng.uniform(size=(n, 3)), 0.29),
    "t with 3 degrees, d 5": (lambda n, rng: rng.standard_t(3, size=(n, 5)), 1.7),
    "lognormal, d 4": (lambda n, rng: np.exp(rng.normal(size=(n, 4))), 2.0),
    "two moons": (lambda n, rng: make_moons(n, noise=0.05, random_state=int(rng.integers(2**31)))[0], 0.05),
    "digits": (None, 0.2),
}


def rows(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn, and fresh ones."""
    draw = KINDS[kind][0]
    if draw is None:
        shuffled = rng.permutation(load_digits().data / 16)
        return shuffled[:1100], shuffled[1100:]
    return draw(n, rng), draw(N_FRESH, rng)


def measure(kind: str, n_sites: int, server: str, n: int = 10_000, **settings: object) -> list[float]:
    """Shares called novel: of fresh rows, of far rows and of near rows by the model; of fresh rows by the means."""
    rng = np.random.default_rng(n_sites)
    X, fresh = rows(kind, n, rng)
    model = FCAC(server=server, random_state=0, **settings).fit(X, groups=np.arange(len(X)) % n_sites)
    far, near = strange(kind, X, fresh, rng)
    shares = [model.is_novel(some, alpha=0.01).mean() for some in (fresh, far, near)]
    return [100 * float(share) for share in (*shares, model.export().is_novel(fresh, alpha=0.01).mean())]


def strange(kind: str, X: np.ndarray, fresh: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Far rows and near rows."""
    spread = KINDS[kind][1]
    away = rng.normal(size=fresh.shape)
    near = fresh + 10 * spread * away / np.linalg.norm(away, axis=1)[:, None]
    sides = np.where(rng.random(X.shape[1]) < 0.5, -1, 1)
    return X.mean(axis=0) + 10 * X.std(axis=0) * sides + spread * rng.normal(size=(1000, X.shape[1])), near


def measure_private(
    kind: str, n_sites: int, server: str, epsilons: tuple[float, ...], n_draws: int = 3
) -> list[list[tuple[float, float]]]:
    """Shares of fresh and of far rows called novel: by a guess, then with distances released for each epsilon."""
    rng = np.random.default_rng(n_sites)
    X, fresh = rows(kind, 10_000, rng)
    site = np.arange(len(X)) % n_sites
    # bounds must have a width; some pixels are always zero
    low, high = X.min(axis=0), X.max(axis=0)
    privacy = NodeRelease(2.0, np.column_stack([low, np.maximum(high, low + 1e-3)]))
    model = FCAC(server=server, random_state=0, privacy=privacy).fit(X, groups=site, public_groups=True)
    far, _ = strange(kind, X, fresh, rng)

    def shares() -> tuple[float, float]:
        return tuple(100 * float(model.is_novel(some, alpha=0.01).mean()) for some in (fresh, far))

    found = [[shares()]]
    for epsilon in epsilons:
        found.append([])
        for _ in range(n_draws):
            try:
                model.calibrate_novelty(X, site, epsilon=epsilon, public_groups=True)
            except PrivacyError:  # hidden by noise
                found[-1].append((float("nan"), float("nan")))
            else:
                found[-1].append(shares())
    return found


def private_table(server: str, epsilons: tuple[float, ...] = (0.25, 0.5, 1.0)) -> None:
    print(f"\nNodeRelease, epsilon 2, {server}: fresh % by a guess, and with distances at epsilon, three draws each")
    print(f"{'':24s}{'sites':>6s}{'guess':>8s}" + "".join(f"{epsilon:>20g}" for epsilon in epsilons), flush=True)
    every: list[list[tuple[float, float]]] = [[] for _ in range(1 + len(epsilons))]
    for kind in KINDS:
        for n_sites in (1, 5, 20):
            found = measure_private(kind, n_sites, server, epsilons)
            for known, more in zip(every, found, strict=True):
                known += more
            shown = ["".join(f"{fresh:6.2f}" for fresh, _ in draws) for draws in found]
            print(f"{kind:24s}{n_sites:6d}{shown[0]:>8s}" + "".join(f"{some:>20s}" for some in shown[1:]), flush=True)
    for name, draws in zip(("guess", *epsilons), every, strict=True):
        fresh, far = np.array(draws).T
        within = int(((fresh >= 0.3) & (fresh <= 3)).sum())
        print(
            f"{name}: {within} of {len(fresh)} within 0.3 to 3 %, from {np.nanmin(fresh):.2f} to {np.nanmax(fresh):.2f}"
            f" %, {int(np.isnan(fresh).sum())} refused; of far rows {np.nanmin(far):.1f} % or more found"
        )


def table(title: str, server: str, sites: tuple[int, ...] = (1, 5, 20), **settings: object) -> None:
    print(f"\n{title}\n{'':24s}{'sites':>6s}{'fresh %':>9s}{'far %':>8s}{'near %':>8s}{'means: fresh %':>16s}")
    for kind in KINDS:
        for n_sites in sites:
            shares = measure(kind, n_sites, server, **settings)
            print(
                f"{kind:24s}{n_sites:6d}{shares[0]:9.2f}{shares[1]:8.1f}{shares[2]:8.1f}{shares[3]:16.2f}", flush=True
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if "--private" in sys.argv:
        private_table("communities")
        private_table("cae-fc")
        sys.exit()
    table("communities, 10,000 rows", "communities")
    table("the paper's server, 10,000 rows", "cae-fc")
    table("communities, 200,000 rows, at most 2,000 nodes a site", "communities", (1, 10), n=200_000, max_nodes=2000)
