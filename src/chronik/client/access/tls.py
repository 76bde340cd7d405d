"""TLS for client connections: the SSL context and the handshake."""

from __future__ import annotations

import socket
import ssl
import tempfile

from chronik.client.access.settings import ClientSecurity, describe_file_error
from chronik.client.errors import BrokerUnreachable, BrokerUnresponsive, ClientError
from chronik.config import Address


def encrypt_socket(plain: socket.socket, address: Address, security: ClientSecurity) -> ssl.SSLSocket:
    """Perform the TLS handshake and return the encrypted socket. On failure, close the plaintext socket.

    Raises:
        BrokerUnreachable: If the handshake fails.
        ClientError: If the certificates or keys in the settings cannot be used.
    """
    try:
        return create_ssl_context(security).wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        details = f"the broker's certificate was rejected: {error.verify_message}"
        raise BrokerUnreachable(f"TLS with {address} failed: {details} (see ssl.truststore.location)") from error
    except ssl.SSLError as error:
        raise BrokerUnreachable(f"TLS with {address} failed: {_describe_ssl_error(error)}") from error
    except TimeoutError as error:  # a listener without TLS would have closed the connection
        raise BrokerUnresponsive(address, plain.gettimeout() or 0.0) from error
    except OSError as error:
        reason = error.strerror or error
        raise BrokerUnreachable(f"TLS with {address} failed: {reason}; does this listener use TLS?") from error
    finally:
        plain.close()  # no effect once wrapped: the SSL socket owns the descriptor


def _describe_ssl_error(error: ssl.SSLError) -> str:
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "this listener does not use TLS"
    return (error.reason or str(error)).lower().replace("_", " ")


def create_ssl_context(security: ClientSecurity) -> ssl.SSLContext:
    """Create the SSL context for the settings. Raise ClientError if certificates or keys cannot be loaded."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(security.identification)
    try:
        if security.ca_file or security.ca:
            context.load_verify_locations(security.ca_file or None, cadata=security.ca or None)
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as error:
        raise ClientError(
            f"{_format_setting('ssl.truststore.location', security.ca_file)}: {describe_file_error(error)}"
        ) from None
    if security.certificate_file or security.certificate:
        _load_certificate(context, security)
    return context


def _load_certificate(context: ssl.SSLContext, security: ClientSecurity) -> None:
    """Load the client certificate and key.

    Inline PEM is written to a temporary file, since OpenSSL only reads files.
    """
    password = security.key_password or (lambda: "")  # prevents OpenSSL from prompting
    try:
        if security.certificate_file:
            context.load_cert_chain(security.certificate_file, security.key_file or None, password)
            return
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem_file:  # created with mode 0600
            pem_file.write(f"{security.key}\n{security.certificate}\n")
            pem_file.flush()
            context.load_cert_chain(pem_file.name, None, password)
    except (OSError, ssl.SSLError) as error:
        setting_name = _format_setting("ssl.keystore.location", security.certificate_file)
        raise ClientError(f"{setting_name}: {describe_file_error(error)}") from None


def _format_setting(setting: str, file: str) -> str:
    return f"{setting} = {file}" if file else setting
