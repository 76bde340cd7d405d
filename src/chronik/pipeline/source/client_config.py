"""The option `clientConfig`: a client config file with settings that then need not be options.

Spark shows options in plans, logs and its web UI. The driver reads the file; tasks receive the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chronik.client.access.settings import SECURITY_SETTINGS, read_properties
from chronik.client.errors import ClientError
from chronik.client.registry_settings import PREFIX as REGISTRY_PREFIX
from chronik.client.registry_settings import URL_SETTING, parse_registry_config
from chronik.errors import ConfigError
from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.option_names import PREFIX

CLIENT_CONFIG: Final = "clientConfig"
_BOOTSTRAP: Final = "bootstrap.servers"
_FORMATS: Final = ("keyformat", "valueformat")


def add_client_config(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the settings of the file that `clientConfig` names; options take precedence.

    Raises:
        OptionError: The file cannot be read, or a setting is invalid.
    """
    given = {name.lower(): value for name, value in options.items()}
    path = given.pop(CLIENT_CONFIG.lower())
    try:
        properties = read_properties(Path(path))
        registry = parse_registry_config(properties)
        url = given.get(URL_SETTING, registry.url)
        settings = registry.settings if url is None else registry.get_settings(url)
    except (ClientError, ConfigError) as error:
        raise OptionError(f"{CLIENT_CONFIG}: {error}") from None
    added = {PREFIX + name: value for name, value in properties.items() if name in SECURITY_SETTINGS}
    if _BOOTSTRAP in properties and not {_BOOTSTRAP, PREFIX + _BOOTSTRAP} & given.keys():
        added[_BOOTSTRAP] = properties[_BOOTSTRAP]
    if any(name in given for name in _FORMATS):
        added |= {REGISTRY_PREFIX + name: value for name, value in settings.items()}
        if url is not None:
            added[URL_SETTING] = url
    return added | given
