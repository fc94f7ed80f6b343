"""A site's connection to the hub over Flower's Fleet interface: the site's half of the adapter to ``flwr``."""

from __future__ import annotations

import base64
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from flwr.app import Message

from fcac._version import __version__

# Flower's log says at length what every request contains; only its warnings are of interest.
logging.getLogger("flwr").setLevel(logging.WARNING)

#: Seconds between two signs of life; a site that misses two is considered away.
HEARTBEAT_SECONDS = 15.0
#: The header in which a site tells the version of fcac it runs.
VERSION_HEADER = "x-fcac-version"
#: Flower's answer to a site for which there is no message: its kind, and its body.
NO_MESSAGES = (b"application/protobuf", b"")
#: Where a site fetches a message, and sends a reply, in one request; Flower's own interface takes nine for the two.
FETCH_PATH, REPLY_PATH = "/v1/fleet/whole-message", "/v1/fleet/whole-reply"


class HubAway(Exception):
    """The hub cannot be reached, or does not answer, at the moment."""


class HubRefuses(Exception):
    """The hub has answered and refuses; trying again will not help until somebody changes something."""


class KeyInUse(Exception):
    """The hub knows the key but holds it for in use by another process; it lets go of it after half a minute."""


class _NotOffered(HubAway):
    """The hub is of an earlier version and does not offer what was asked for."""


def without_content(message: Message) -> Message:
    """Return the envelope of a message, whose content travels in parts of its own."""
    from flwr.app.message import remove_content_from_message

    bare: Message = remove_content_from_message(message)
    return bare


@dataclass
class _Claimed:
    """A message that the hub has handed out, as far as its parts have been fetched."""

    key: str
    run_id: int
    parts: list[str]
    contents: dict[str, bytes] = field(default_factory=dict)


def join_parts(parts: Iterable[bytes]) -> bytes:
    """Write several byte strings as one, each with its length before it.

    Examples
    --------
    >>> from fcac.flower.fleet_client import join_parts, split_parts
    >>> split_parts(join_parts([b"one", b"", b"three"]))
    [b'one', b'', b'three']
    """
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def split_parts(data: bytes) -> list[bytes]:
    """Read what :func:`join_parts` has written; raise ``ValueError`` if it is something else."""
    parts, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data) or at + 4 > len(data):
            raise ValueError("the parts of a message are cut short")
        parts.append(data[at + 4 : end])
        at = end
    return parts


def asking_node(body: bytes) -> int | None:
    """Return which node asks for messages, from the body of its request; None if that is none."""
    from flwr.proto.fleet_pb2 import PullMessagesRequest
    from google.protobuf.message import DecodeError

    try:
        return int(PullMessagesRequest.FromString(body).node.node_id)
    except DecodeError:
        return None


def wrapped(data: bytes) -> tuple[bytes, bytes]:
    """Return bytes as the body of an answer, with its kind."""
    from google.protobuf.wrappers_pb2 import BytesValue

    return NO_MESSAGES[0], BytesValue(value=data).SerializeToString()


def unwrapped(body: bytes) -> bytes:
    """Return the bytes in the body of a request; raise ``ValueError`` if there are none."""
    from google.protobuf.message import DecodeError
    from google.protobuf.wrappers_pb2 import BytesValue

    try:
        return bytes(BytesValue.FromString(body).value)
    except DecodeError:
        raise ValueError("this is not a message") from None


class FleetConnection:
    """A site's connection to the hub: fetch messages, answer them, show that the site is alive.

    Every method raises :class:`HubAway` when the hub cannot be reached and :class:`HubRefuses` when it does not accept
    the site. A clock that differs from the hub's is noticed and made up for.

    Parameters
    ----------
    address : str
        Host and port of the hub.
    certificate : Path, optional
        Certificate of the authority that signed the hub's; None means no encryption, for loopback only.
    key : Path, optional
        The site's private key; None generates one that the hub accepts only without keys.
    """

    def __init__(self, address: str, certificate: Path | None, key: Path | None) -> None:
        from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
        from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
        from flwr.supernode.fleet_http_client import FleetHttpClient

        self._anonymous = key is None
        self._private, public = generate_key_pairs() if key is None else _key_pair(key)
        self._public = public_key_to_bytes(public)
        self.skew = timedelta(0)
        self._client = FleetHttpClient.from_server_address(
            address,
            certificate is None,
            None if certificate is None else certificate.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperNode"), self],
        )
        self._node: Any = None
        self._claimed: _Claimed | None = None
        self._whole, self._last = True, ""
        self._lock = threading.Lock()

    # the name is Flower's: this object is one of the client's interceptors
    def intercept(self, context: Any, call_next: Any) -> Any:
        """Sign a request with the hub's time, as far as it is known."""
        from flwr.common.constant import TIMESTAMP_HEADER
        from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
        from flwr.supercore.date import now
        from flwr.supercore.interceptors.http.utils import add_headers
        from flwr.supercore.primitives.asymmetric import sign_message

        stamp = (now() - self.skew).isoformat()
        signature = sign_message(self._private, stamp.encode("ascii"))
        headers = {
            FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(self._public).decode("ascii"),
            TIMESTAMP_HEADER: stamp,
            FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(signature).decode("ascii"),
            VERSION_HEADER: __version__,
        }
        add_headers(context.request, headers)
        return call_next(context)

    def connect(self) -> None:
        """Tell the hub that this site is here."""
        from flwr.proto.fleet_pb2 import ActivateNodeRequest, RegisterNodeFleetRequest
        from flwr.proto.node_pb2 import Node

        if self._anonymous:
            self._call("RegisterNode", RegisterNodeFleetRequest(public_key=self._public))
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT_SECONDS)
        self._node = Node(node_id=self._call("ActivateNode", request).node_id)

    def beat(self) -> None:
        """Send a sign of life."""
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest

        answer = self._call(
            "SendNodeHeartbeat", SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_SECONDS)
        )
        if not answer.success:
            raise HubRefuses("the hub no longer knows this site")

    def fetch(self) -> Message | None:
        """Return the next message for this site, or None."""
        if self._whole and self._claimed is None:
            try:
                return self._fetch_whole()
            except _NotOffered:
                self._whole = False
        return self._fetch_in_parts()

    def _fetch_whole(self) -> Message | None:
        """Fetch a message in one request. The hub is told which came last, so that it sees if a later one was lost."""
        from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        question = PullMessagesRequest(node=self._node).SerializeToString()
        parts = split_parts(self._call_whole(FETCH_PATH, [question, self._last.encode()]))
        if not parts:
            return None
        answer = PullMessagesResponse.FromString(parts[0])
        names = [tree.object_id for tree in iterate_object_tree(answer.message_object_trees[0])]
        key = answer.messages_list[0].metadata.message_id
        message = _inflated(key, dict(zip(names, parts[1:], strict=True)))
        self._last = key
        return message

    def _fetch_in_parts(self) -> Message | None:
        """Fetch a message from a hub of an earlier version, part by part."""
        from flwr.proto.fleet_pb2 import PullMessagesRequest
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        if self._claimed is None:
            answer = self._call("PullMessages", PullMessagesRequest(node=self._node))
            if not answer.messages_list:
                return None
            meta = answer.messages_list[0].metadata
            parts = [tree.object_id for tree in iterate_object_tree(answer.message_object_trees[0])]
            # The hub hands out a message once: if the connection is cut now, the rest is fetched later.
            self._claimed = _Claimed(meta.message_id, meta.run_id, parts)
        claimed = self._claimed
        for name in claimed.parts:
            if name not in claimed.contents:
                request = PullObjectRequest(node=self._node, run_id=claimed.run_id, object_id=name)
                part = self._call("PullObject", request)
                if not part.object_found or not part.object_available:
                    self._claimed = None
                    raise HubAway("the request was withdrawn")
                claimed.contents[name] = part.object_content
        self._call(
            "ConfirmMessageReceived",
            ConfirmMessageReceivedRequest(node=self._node, run_id=claimed.run_id, message_object_id=claimed.key),
        )
        self._claimed = None
        return _inflated(claimed.key, claimed.contents)

    def reply(self, reply: Message, seconds: float = 0.0) -> None:
        """Send a reply; `seconds` is what it took, rounded to hide what it says about the data."""
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.proto.message_pb2 import PushObjectRequest
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            iterate_object_tree,
            no_object_id_recompute,
        )

        run_id = reply.metadata.run_id
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            request = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(without_content(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[seconds],
            )
            parts = get_all_nested_objects(reply)
            if self._whole:
                names = [tree.object_id for tree in iterate_object_tree(request.message_object_trees[0])]
                contents = [parts[name].deflate() for name in names]
                try:
                    self._call_whole(REPLY_PATH, [request.SerializeToString(), *contents])
                except _NotOffered:
                    self._whole = False
                else:
                    return
            answer = self._call("PushMessages", request)
            for key in answer.objects_to_push:
                part = PushObjectRequest(
                    node=self._node,
                    run_id=run_id,
                    session_id=answer.session_id,
                    object_id=key,
                    object_content=parts[key].deflate(),
                )
                self._call("PushObject", part)

    def close(self) -> None:
        """Tell the hub that this site leaves, if it can be told, and end the connection."""
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest, UnregisterNodeFleetRequest

        if self._node is not None:
            with contextlib.suppress(HubAway, HubRefuses, KeyInUse):
                self._call("DeactivateNode", DeactivateNodeRequest(node_id=self._node.node_id))
                if self._anonymous:
                    self._call("UnregisterNode", UnregisterNodeFleetRequest(node_id=self._node.node_id))
        self._node = None
        self._client.close()

    def _call_whole(self, path: str, parts: Iterable[bytes]) -> bytes:
        """Ask the hub for what is not in Flower's interface."""
        from google.protobuf.wrappers_pb2 import BytesValue

        def ask(request: Any) -> Any:
            return self._client._unary_unary(path=path, rpc_method=path, request=request, response_type=BytesValue)

        return bytes(self._call(ask, BytesValue(value=join_parts(parts))).value)

    def _call(self, method: str | Callable[[Any], Any], request: Any) -> Any:
        import httpx

        for attempt in (1, 2):
            try:
                # one request at a time: the thread that sends signs of life shares the connection
                with self._lock:
                    return (getattr(self._client, method) if isinstance(method, str) else method)(request)
            except httpx.HTTPStatusError as error:
                if attempt == 1 and error.response.status_code == 401 and self._learn_time(error.response):
                    continue
                raise _explained(error) from None
            except (httpx.HTTPError, OSError, ValueError) as error:
                raise HubAway(_certificate_or(error)) from None
        raise AssertionError

    def _learn_time(self, response: Any) -> bool:
        """Take over the hub's time where ours differs by seconds; return whether that changed anything."""
        from flwr.supercore.date import now

        try:
            theirs = parsedate_to_datetime(response.headers["date"])
        except (KeyError, ValueError, TypeError):
            return False
        skew = now() - theirs
        if abs(skew - self.skew) < timedelta(seconds=3):
            return False
        self.skew = skew
        return True


def _key_pair(path: Path) -> tuple[Any, Any]:
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    private: Any = load_ssh_private_key(path.read_bytes(), password=None)
    return private, private.public_key()


def _inflated(key: str, contents: dict[str, bytes]) -> Message:
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    message = inflate_object_from_contents(key, contents)
    if not isinstance(message, Message):
        raise HubAway("the hub has sent something that is not a message")
    message.metadata.__dict__["_message_id"] = key
    return message


def _explained(error: Any) -> Exception:
    """Return what an answer of the hub means for the site."""
    status, text = error.response.status_code, error.response.text[:300]
    if status == 404:
        return _NotOffered("the hub does not know this request")
    if status == 401:
        return HubRefuses("the hub refuses this site's key: it is unknown or revoked")
    if "activat" in text.lower():
        return KeyInUse("the hub still sees this site's key in use")
    if status in (413, 429):
        return HubAway(f"the hub refuses for now, with status {status}: too much was sent")
    return HubAway(f"the hub answers with status {status}")


def _certificate_or(error: Exception) -> str:
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "the hub's certificate is expired, for another address, or not of the authority in the bundle"
    return f"the hub does not answer ({type(error).__name__})"
