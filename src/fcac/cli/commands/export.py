"""``fcac export``: write only what `predict` needs."""

from __future__ import annotations

from typing import Annotated

import typer

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.terminal import BadUse, check_out, note, say
from fcac.privacy.mechanism import NodeMechanism


def export(
    model: opt.ModelPath,
    out: opt.Out,
    share_nodes: Annotated[
        bool,
        typer.Option(
            "--share-nodes", help="With --server communities: export the sites' own nodes, which can be raw records."
        ),
    ] = False,
    force: opt.Force = False,
) -> None:
    """Write only what `predict` needs: labelled nodes, without sites, counts or contributions.

    [bold]Example[/bold]

    fcac export model.fcac --out codebook.fcac
    """
    from fcac import save
    from fcac.cli.model_file import load_model

    check_out(out, force)
    known = load_model(model)
    if not hasattr(known, "export"):
        raise BadUse(f"{model} is a {type(known).__name__}, which contains nothing that could be left out")
    book = known.export(share_nodes=share_nodes)
    save(book, out)
    clusters = counted(len(set(book.labels.tolist())), "cluster")
    say(f"Exported {counted(len(book.nodes), 'labelled node')} of {clusters}; no site states, no contributions.")
    if not isinstance(known.privacy, NodeMechanism):
        note("note: without --epsilon, a node can still be close to a record; see the privacy guide before sharing it")
    say(f"Codebook: {out}")
