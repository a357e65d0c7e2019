"""What a message type discloses, as its .proto file declares it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import Default

from common.errors import LocalProtocolError
from common.rpc.pb.disclosure_pb2 import Disclosure, disclosure


def disclosure_of(descriptor: Descriptor) -> Disclosure:
    """Return the declaration of a message type.

    Raises:
        LocalProtocolError: The type has none, or one that leaves out kind, granularity, protection or
            summary, or one that says "ciphertext" without saying whose key opens it.
    """
    options = descriptor.GetOptions()
    if not options.HasExtension(disclosure):
        raise LocalProtocolError(
            f"{descriptor.full_name} does not declare what it discloses, so it is not sent",
            advice="give the message option (vfl.v1.disclosure) in its .proto file",
        )
    declared = options.Extensions[disclosure]
    complete = declared.kind and declared.granularity and declared.protection and declared.summary
    is_ciphertext = declared.protection == Disclosure.CIPHERTEXT
    if not complete or is_ciphertext != bool(declared.key_holder):
        raise LocalProtocolError(
            f"{descriptor.full_name} declares only in part what it discloses, so it is not sent",
            advice="kind, granularity, protection and summary are needed; key_holder exactly for ciphertexts",
        )
    return declared


def summary_of(message_type: str) -> str:
    """Return in one sentence what a message says, by its full name; the name alone if it is not of ours."""
    try:
        declared = disclosure_of(Default().FindMessageTypeByName(message_type))
    except (KeyError, LocalProtocolError):
        return message_type
    return declared.summary


def undeclared_messages(descriptor: Descriptor) -> list[str]:
    """Return the full names of all message types within a message that lack a complete declaration."""
    return sorted(part.full_name for part in _parts(descriptor) if not _is_declared(part))


def rpc_messages(files: Iterable[FileDescriptor]) -> Iterator[Descriptor]:
    """Yield the input and output types of every method of every service in the files."""
    for file in files:
        for service in file.services_by_name.values():
            for method in service.methods:
                yield method.input_type
                yield method.output_type


def _is_declared(descriptor: Descriptor) -> bool:
    try:
        disclosure_of(descriptor)
    except LocalProtocolError:
        return False
    return True


def _parts(descriptor: Descriptor) -> list[Descriptor]:
    """Return the type and every message type its fields can hold; map entries are containers only."""
    found = [descriptor]
    for part in found:
        for field in part.fields:
            inner = field.message_type
            if inner is not None and inner not in found:
                found.append(inner)
    return [part for part in found if not part.GetOptions().map_entry]
