"""A live console of a federation in the browser: what happens, and buttons for what the commands can do."""

from fcac.deployment.console.pages import Console, new_token

__all__ = ["Console", "new_token"]
