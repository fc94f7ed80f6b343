"""A site as a Flower ``ClientApp``: each message holds a request, and its reply the site's answer.

The settings of the site are named by the configuration of its SuperNode: ``fcac-site="/path/to/settings.json"``.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fcac.deployment.answers import answer
from fcac.deployment.settings import SiteSettings

#: Key of the node configuration that names the site's settings file.
SETTINGS_KEY = "fcac-site"
RECORD = "fcac"

app = ClientApp()


def ask(message: Message, context: Context) -> Message:
    """Answer a request; the site's own log has what went wrong, and the hub learns no more than a code."""
    reply = answer(str(context.node_config.get(SETTINGS_KEY, "")), bytes(message.content[RECORD]["data"]))
    return Message(RecordDict({RECORD: ConfigRecord({"data": reply})}), reply_to=message)


def name(message: Message, context: Context) -> Message:
    """Say which site this is."""
    try:
        site = SiteSettings.load(str(context.node_config.get(SETTINGS_KEY, ""))).name
    except (OSError, ValueError, TypeError):
        # the text of an error would travel to the hub
        site = ""
    return Message(RecordDict({RECORD: ConfigRecord({"site": site})}), reply_to=message)


app.train("ask")(ask)
app.query("name")(name)
