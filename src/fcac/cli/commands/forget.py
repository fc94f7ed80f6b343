"""``fcac forget``: remove a site from a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.terminal import BadUse, check_out, say


def forget(
    model: opt.ModelPath,
    site: Annotated[str, typer.Argument(help="Name of the site.", metavar="SITE", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the new model here instead.", show_default=False)
    ] = None,
    force: opt.Force = False,
) -> None:
    """Forget a site exactly: the model becomes what it would have been without the site.

    Copies, exports and reports made earlier still contain the site.

    [bold]Example[/bold]

    fcac forget model.fcac north
    """
    from fcac import save
    from fcac.cli.model_file import load_model
    from fcac.tables import site_from_text

    if out is not None:
        check_out(out, force or out.resolve() == model.resolve())
    known = load_model(model)
    if not hasattr(known, "forget"):
        raise BadUse(f"{model} is a {type(known).__name__}: it has no sites to forget")
    sites = known.server_.sites
    name = site_from_text(site)
    if name not in sites and site not in sites:
        shown = ", ".join(map(str, sites[:12])) + (" ..." if len(sites) > 12 else "")
        raise BadUse(f"no site {site} in {model}; its sites are {shown}")
    known.forget(name if name in sites else site)
    save(known, out or model)
    left = counted(len(known.server_.sites), "site")
    say(f"Forgot site {site}: {counted(known.n_clusters_, 'cluster')} from {left} remain.")
    say(f"Model: {out or model}")
