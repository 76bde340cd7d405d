"""TLS for all connections: settings, contexts that reload changed certificates, and a transport.

The cryptography is OpenSSL's, through the standard library's `ssl`; security fixes come with the system or Python.
"""
