"""DescribeConfigs (API key 32): returns configs with their value, source, synonyms, type and documentation."""

from __future__ import annotations

from collections.abc import Generator

from chronik.admin.configs import ConfigAdmin, ConfigResourceKey
from chronik.api.shared.authorization import require_config_permission
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.long_responses import ResponseElements
from chronik.configs.resolver import ConfigEntry, ConfigSource
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from chronik.protocol.permissions import AclOperation
from chronik.request_reply import Reply


def handle(
    services: Services, request: DescribeConfigsRequest, context: RequestContext
) -> Reply[DescribeConfigsResponse]:
    return Reply.from_steps(_describe_resources(services, request, context))


def _describe_resources(
    services: Services, request: DescribeConfigsRequest, context: RequestContext
) -> Generator[None, None, DescribeConfigsResponse]:
    configs = ConfigAdmin(
        services.config,
        services.store,
        services.configs,
        services.clock,
        services.bound_addresses,
        services.registry_url,
    )
    results = ResponseElements(DescribeConfigsResponse, context.version)
    for resource, keys in _merge_config_resources(request.resources).items():
        result = DescribeConfigsResult(resource_type=resource.type, resource_name=resource.name, error_message=None)
        try:
            require_config_permission(services, context, AclOperation.DESCRIBE_CONFIGS, *resource)
            result.configs = [
                _encode_entry(entry, request)
                for entry in configs.describe(resource)
                if not keys or entry.key.name in keys
            ]
            results.add(result)
        except KafkaError as error:
            result.configs, result.error_code, result.error_message = [], error.code, error.message
            results.add_error(result)
        yield
    return DescribeConfigsResponse(results=results.to_list(DescribeConfigsResult))


def _merge_config_resources(resources: list[DescribeConfigsResource]) -> dict[ConfigResourceKey, set[str]]:
    """Return the requested config names of each resource, where an empty set means all configs.

    A resource that is named at least once without config names gets all of its configs.
    """
    keys: dict[ConfigResourceKey, set[str]] = {}
    with_all_configs = set()
    for each in resources:
        resource = ConfigResourceKey(each.resource_type, each.resource_name)
        keys.setdefault(resource, set()).update(each.configuration_keys or ())
        if not each.configuration_keys:
            with_all_configs.add(resource)
    return {resource: set() if resource in with_all_configs else names for resource, names in keys.items()}


def _encode_entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    hidden = entry.key.is_sensitive
    return DescribeConfigsResourceResult(
        name=entry.key.name,
        value=None if hidden else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_default=entry.source is ConfigSource.DEFAULT,
        is_sensitive=hidden,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=None if hidden else synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=entry.key.type,
        documentation=entry.key.doc if request.include_documentation else None,
    )
