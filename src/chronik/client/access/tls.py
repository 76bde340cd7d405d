"""TLS as a client has it: a context made of its settings, and a connection that says what was wrong."""

from __future__ import annotations

import socket
import ssl
import tempfile

from chronik.client.access.settings import ClientSecurity, reason_of_file
from chronik.client.errors import BrokerUnreachable, BrokerUnresponsive, ClientError
from chronik.config import Address


def encrypted(plain: socket.socket, address: Address, security: ClientSecurity) -> ssl.SSLSocket:
    """Shakes hands. Raises BrokerUnreachable when that fails, ClientError when the settings cannot be used; then
    the socket is closed."""
    try:
        return context_of(security).wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        why = f"its certificate is not accepted: {error.verify_message}"
        raise BrokerUnreachable(f"TLS with {address} failed: {why} (see ssl.truststore.location)") from error
    except ssl.SSLError as error:
        raise BrokerUnreachable(f"TLS with {address} failed: {_what(error)}") from error
    except TimeoutError as error:  # a port without TLS would close the connection
        raise BrokerUnresponsive(address, plain.gettimeout() or 0.0) from error
    except OSError as error:
        reason = error.strerror or error
        raise BrokerUnreachable(f"TLS with {address} failed: {reason}: does that port expect TLS?") from error
    finally:
        plain.close()  # does nothing once it is wrapped: the descriptor is the other one's


def _what(error: ssl.SSLError) -> str:
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "that port does not speak TLS"
    return (error.reason or str(error)).lower().replace("_", " ")


def context_of(security: ClientSecurity) -> ssl.SSLContext:
    """Raises ClientError when certificates or keys cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(security.identification)
    try:
        if security.ca_file or security.ca:
            context.load_verify_locations(security.ca_file or None, cadata=security.ca or None)
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as error:
        raise ClientError(f"{_named('ssl.truststore.location', security.ca_file)}: {reason_of_file(error)}") from None
    if security.certificate_file or security.certificate:
        _load_certificate(context, security)
    return context


def _load_certificate(context: ssl.SSLContext, security: ClientSecurity) -> None:
    """OpenSSL reads certificates and keys from files only: those that stand in the settings pass through one."""
    password = security.key_password or (lambda: "")  # never a prompt
    try:
        if security.certificate_file:
            context.load_cert_chain(security.certificate_file, security.key_file or None, password)
            return
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:  # made for its owner's eyes only
            both.write(f"{security.key}\n{security.certificate}\n")
            both.flush()
            context.load_cert_chain(both.name, None, password)
    except (OSError, ssl.SSLError) as error:
        named = _named("ssl.keystore.location", security.certificate_file)
        raise ClientError(f"{named}: {reason_of_file(error)}") from None


def _named(setting: str, file: str) -> str:
    return f"{setting} = {file}" if file else setting
