"""A live console of a federation in the browser: what happens, and buttons for what the commands can do."""

from fcac.deployment.console.web import Console

__all__ = ["Console"]
