"""A site's process: it asks the hub for messages and answers each with the site's own app. It listens on no port.

Nothing that comes from the hub is executed: a message holds values, and only :mod:`fcac.flower.client_app` answers.
"""

from __future__ import annotations

import os
import random
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    from fcac._without import leave_out

    # scikit-learn loads pandas wherever it is installed, and OpenDP polars; a site does without, and with 70 MB less
    leave_out("pandas")
    leave_out("polars")

from fcac._text import plain
from fcac.deployment.settings import SiteSettings
from fcac.deployment.site_agent import write_log
from fcac.deployment.study import KEY_FILE, read_bundle
from fcac.exceptions import FlowerError
from fcac.flower import processes
from fcac.flower.fleet_client import HEARTBEAT_SECONDS, FleetConnection, HubAway, HubRefuses, KeyInUse

Say = Callable[[str], None]

# The hub keeps the question for messages until there is one, or some seconds have passed. A hub of an earlier version
# answers at once; then the site waits.
_KEPT_SECONDS = 1.0
_POLL_SECONDS = 1.5
# After a message, the next is often near: the model follows the last contribution.
_EAGER_SECONDS, _EAGER_POLL = 10.0, 0.3
_RETRY_SECONDS = 5.0
_MOST_RETRY_SECONDS = 60.0
_REPLY_SECONDS = 120.0
_SKEW_WORTH_TELLING = 3.0


class SiteNode:
    """Connects one site to its hub, and stays connected, until it is stopped or refused.

    Parameters
    ----------
    bundle : Path
    settings : SiteSettings
    settings_file : Path
        Where the settings are stored; requests are answered from this file.
    say : callable
        Called with every line that the operator should see.
    """

    def __init__(self, bundle: Path, settings: SiteSettings, settings_file: Path, say: Say = print) -> None:
        facts = read_bundle(bundle)
        self.bundle, self.settings, self.settings_file, self.say = bundle, settings, settings_file, say
        self.address, self.insecure = str(facts["address"]), bool(facts["insecure"])
        lacking = [name for name in ("ca.crt", KEY_FILE) if not self.insecure and not (bundle / name).is_file()]
        if lacking:
            raise FlowerError(f"the bundle {bundle} has no {lacking[0]}: has the site been revoked?")
        self.connected = False
        self._stopped = threading.Event()
        self._news = NewLines(Path(settings.state) / "site.log")

    def run(self) -> None:
        """Answer messages until :meth:`stop` is called; raise an error once the hub refuses this site."""
        os.umask(0o077)
        pause, away_since, told = _RETRY_SECONDS, None, ""
        while not self._stopped.is_set():
            connection = None
            try:
                connection = self._open()
                connection.connect()
                self._welcome(connection, away_since)
                pause, away_since, told = _RETRY_SECONDS, None, ""
                self._answer_messages(connection)
            except HubRefuses as error:
                raise FlowerError(str(error)) from None
            except (HubAway, KeyInUse) as error:
                if self.connected or str(error) != told:
                    self.say(f"{error}; trying again until it does")
                    told = str(error)
                away_since = away_since or time.monotonic()
                if "certificate" in told:
                    raise FlowerError(told) from None
            finally:
                self.connected = False
                if connection is not None:
                    connection.close()
            # sites that lost the hub at the same moment should not all come back at the same moment
            self._stopped.wait(pause * random.uniform(0.8, 1.2))
            pause = min(_MOST_RETRY_SECONDS, 1.5 * pause)

    def _open(self) -> FleetConnection:
        if self.insecure:
            return FleetConnection(self.address, None, None)
        return FleetConnection(self.address, self.bundle / "ca.crt", self.bundle / KEY_FILE)

    def _welcome(self, connection: FleetConnection, away_since: float | None) -> None:
        self.connected = True
        gap = "" if away_since is None else f" after {time.monotonic() - away_since:.0f} seconds"
        self.say(f"Connected{gap}.")
        skew = connection.skew.total_seconds()
        if abs(skew) > _SKEW_WORTH_TELLING:
            side = "ahead of" if skew > 0 else "behind"
            self.say(
                f"note: this machine's clock is {abs(skew):.0f} seconds {side} the hub's; it is allowed for, but set it"
            )

    def _answer_messages(self, connection: FleetConnection) -> None:
        """Answer messages as they come, while a second thread shows that this site is alive."""
        ended, failed = threading.Event(), []

        def pulse() -> None:
            while not ended.wait(0.8 * HEARTBEAT_SECONDS):
                try:
                    connection.beat()
                except HubAway:
                    continue  # the other thread finds out by itself
                except (HubRefuses, KeyInUse) as error:
                    failed.append(error)
                    return

        thread = threading.Thread(target=pulse, daemon=True)
        thread.start()
        eager_until = 0.0
        try:
            while not self._stopped.is_set():
                if failed:
                    raise failed[0]
                asked = time.monotonic()
                message = self._patiently(connection.fetch)
                if message is None:
                    now = time.monotonic()
                    if now - asked < _KEPT_SECONDS:
                        pause = _EAGER_POLL if now < eager_until else _POLL_SECONDS
                        self._stopped.wait(pause * random.uniform(0.8, 1.2))
                    continue
                answer = self._answer(message)
                for line in self._news.read():
                    self.say(line)
                # a reply that cannot be delivered is kept in the state directory and sent in the next round
                self._patiently(partial(connection.reply, answer), _REPLY_SECONDS)
                eager_until = time.monotonic() + _EAGER_SECONDS
        finally:
            ended.set()
            thread.join()

    def _patiently(self, call: Callable[[], Any], seconds: float | None = None) -> Any:
        """Call until the hub answers, telling once that it does not; give up, with None, when time runs out."""
        begin, pause = time.monotonic(), 1.0
        while True:
            try:
                result = call()
            except HubAway as error:
                waited = time.monotonic() - begin
                if self.connected:
                    self.connected = False
                    self.say(f"{error}; trying until it does")
                if self._stopped.wait(pause * random.uniform(0.8, 1.2)) or (seconds is not None and waited > seconds):
                    return None
                pause = min(_MOST_RETRY_SECONDS, 1.5 * pause)
                continue
            if not self.connected:
                self.connected = True
                self.say(f"Connected again after {time.monotonic() - begin:.0f} seconds.")
            return result

    def _answer(self, message: Any) -> Any:
        from flwr.app import Context, Error, Message, RecordDict

        from fcac.flower.client_app import SETTINGS_KEY, app

        meta = message.metadata
        context = Context(meta.run_id, meta.dst_node_id, {SETTINGS_KEY: str(self.settings_file)}, RecordDict(), {})
        try:
            return app(message, context)
        except Exception:  # a kind of message that this version does not know
            write_log(self.settings.state, f"a request could not be answered\n{traceback.format_exc()}")
            # the text stays here: it could say something about the data
            return Message(Error(code=2, reason="unknown request"), reply_to=message)

    def stop(self) -> None:
        """Leave."""
        self._stopped.set()


def become(bundle: Path, settings_file: Path) -> None:
    """Go on as a site's process in place of the present one, which has loaded more than a site needs."""
    sys.stdout.flush()
    os.execve(
        sys.executable,
        [sys.executable, "-P", "-m", "fcac.flower.site_node", str(bundle.resolve()), str(settings_file)],
        {**processes.LEAN, **os.environ},
    )


class NewLines:
    """Reads what is added to a site's log, entry by entry; the details of errors stay in the file.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = path.stat().st_size if path.exists() else 0

    def read(self) -> list[str]:
        """Return the lines since the last call, in a form that can be shown."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as stream:
            stream.seek(self._at)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        lines = whole.decode("utf-8", "replace").splitlines()
        return [plain(line, 1000) for line in lines if re.match(r"\d{4}-\d\d-\d\dT", line)]


def main() -> None:
    """Take part as a process of its own: ``python -m fcac.flower.site_node BUNDLE SETTINGS``."""
    bundle, settings_file = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        with processes.stopped_by_signals():
            node = SiteNode(
                bundle, SiteSettings.load(settings_file), settings_file, lambda line: print(line, flush=True)
            )
            node.run()
    except KeyboardInterrupt:
        print("Stopping.", flush=True)
    except (FlowerError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
