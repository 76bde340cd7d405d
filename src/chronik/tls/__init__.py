"""TLS on a connection, whoever speaks over it: settings, contexts that follow their files, and a transport.

OpenSSL, by `ssl` of the standard library, has the secrets and the cryptography; its fixes come with the system or with
Python."""
