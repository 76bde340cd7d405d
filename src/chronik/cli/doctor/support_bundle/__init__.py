"""The support bundle: all collected facts in one archive, with secrets redacted."""
