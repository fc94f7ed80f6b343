"""Short texts over three help desks: what are people writing about? No text leaves a desk, only nodes of vectors do.

Run ``python examples/short_texts.py [FOLDER]``. It writes the report ``short_texts.html`` and needs
``pip install 'fcac[text]'``.

The texts are made here, from lists of words. Each desk turns its texts into vectors with the same frozen encoder, which
is installed with the package and downloads nothing; the vectors are condensed and clustered like any other rows. Which
words tell the clusters apart is said twice: from the texts, as one process that holds them all can do, and from a
public vocabulary and the clusters' centres alone, as a server can do that has never seen a text.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

from fcac import FCAC
from fcac.report import write_report
from fcac.tables.text_encoder import encoder, words_from_vocabulary

DESKS = ("north", "south", "west")
# What people write about, in the words they use.
TOPICS = {
    "delivery": "parcel package courier delivery shipment address arrived delayed lost damaged tracking driver",
    "invoice": "invoice bill payment charged amount refund tax fee receipt bank transfer price discount money credit",
    "password": "password login account locked reset code username security email link browser access hacked blocked",
    "garden": "tomato roses leaves soil water prune seeds lawn snails compost apple tree spring fertilizer roots",
}
FILLERS = "please help since last week with the and nobody answers my what can I do thank you again still not about"
VOCABULARY = "mail truck cheap cost salary computer internet privacy plant flower kitchen music weather football river"


def make_texts(n: int, seed: int = 0) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return texts, their topics and the desks they were sent to; desks differ in what they are asked."""
    random = np.random.default_rng(seed)
    words = [topic.split() for topic in TOPICS.values()]
    shares = random.dirichlet([2.0] * len(words), size=len(DESKS))
    desks = random.integers(len(DESKS), size=n)
    topics = np.array([random.choice(len(words), p=shares[desk]) for desk in desks])
    texts = []
    for topic in topics:
        said = [
            *random.choice(words[topic], size=random.integers(4, 8), replace=False),
            *random.choice(FILLERS.split(), size=random.integers(2, 6)),
        ]
        texts.append(" ".join(random.permutation(said)))
    return texts, topics, np.array(DESKS)[desks]


def main(folder: Path) -> None:
    """Encode, cluster, and print the words that tell clusters apart."""
    # Every desk turns its own texts into vectors, with the same encoder.
    texts, topics, desks = make_texts(1500)
    known = encoder("wordllama:64")
    vectors = known.encode(texts)

    # The vectors are condensed and clustered like any other rows.
    model = FCAC(random_state=0).fit(vectors, groups=desks)

    # Words for each cluster, from a public vocabulary.
    print(f"{len(texts)} texts at {len(DESKS)} desks: {model.n_clusters_} clusters for {len(TOPICS)} topics")
    print(f"agreement with the topics (AMI): {adjusted_mutual_info_score(topics, model.labels_):.2f}")
    words = words_from_vocabulary(model.cluster_centers_, known, VOCABULARY.split(), 3)
    for cluster, telling in zip(model.cluster_ids_, words, strict=True):
        size = (model.labels_ == cluster).sum()
        print(f"  cluster {cluster}, {size} texts: {', '.join(telling)}")
    write_report(model, folder / "short_texts.html", title="Three help desks")
    print(f"Report: {folder / 'short_texts.html'}")


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
