"""compose.yaml: what it asks for exists, is pinned and locked down, and its numbers fit each other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.compose import COMPOSE, environment_of, load, seconds, service
from tests.deploy.dockerfile import DOCKERFILE, stages
from tests.deploy.nginxconf import number, values
from tests.support.sources import ROOT
from tidings_gateway.server.settings import ServerSettings
from tidings_gateway.settings import Settings, load_settings
from tidings_gateway.settings.table import mark, rows, variable

GATEWAYS = ("gateway-1", "gateway-2")
SERVICES = sorted(load()["services"])


@pytest.fixture(params=GATEWAYS)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """As a gateway of this file reads them."""
    environ = environment_of(request.param)
    for name in [name for name in environ if name.endswith("_FILE")]:
        path = tmp_path / name
        path.write_text("redis://:p@127.0.0.1:1" if "REDIS" in name else "s" * 64)
        environ[name] = str(path)
    return load_settings(environ)


def _address(name: str) -> str:
    return str(service(name)["networks"]["back"]["ipv4_address"])


def test_there_are_the_services_that_the_readme_names() -> None:
    """nginx, two gateways, Valkey."""
    assert SERVICES == ["gateway-1", "gateway-2", "nginx", "valkey"]


@pytest.mark.parametrize("name", GATEWAYS)
def test_every_variable_is_a_setting(name: str) -> None:
    """Each is in the table of settings, its file form only where there is one; and secrets come as files only."""
    known = {variable(key) for key, _ in rows()}
    in_files = {f"{variable(key)}_FILE" for key, field in rows() if mark(field, "file")}
    secret = {variable(key) for key, field in rows() if mark(field, "secret")}
    given = set(service(name)["environment"])
    assert given <= known | in_files
    assert not given & secret


def test_the_settings_are_accepted(settings: Settings) -> None:
    """A gateway starts with them; what it needs to start is there."""
    assert settings.jwt_secret
    assert settings.api_key
    assert settings.gateway_name


def test_the_gateways_differ_in_name_and_address_only() -> None:
    """What one is told, the other is told."""
    one, two = (dict(service(name)) for name in GATEWAYS)
    assert one.pop("environment").pop("TIDINGS_GATEWAY_NAME") != two.pop("environment").pop("TIDINGS_GATEWAY_NAME")
    assert one.pop("networks") != two.pop("networks")
    assert one == two


def test_metrics_are_where_prometheus_looks_and_nowhere_else(settings: Settings) -> None:
    """Its targets are the gateways at the port of TIDINGS_ADMIN_LISTEN, which no port of the machine leads to and
    which nginx passes nothing to."""
    jobs = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
    assert settings.admin_listen is not None
    port = settings.admin_listen.port
    targets = [target for job in jobs for told in job["static_configs"] for target in told["targets"]]
    assert targets == [f"{_address(name)}:{port}" for name in GATEWAYS]
    assert not any("ports" in service(name) for name in GATEWAYS)
    assert not [server for server in values("server") if server.split()[0] in targets]


def test_a_drain_has_time(settings: Settings) -> None:
    """A gateway is not killed before the longest drain has ended."""
    names = {field.name for field in fields(ServerSettings)} & set(Settings.model_fields) - {"listen"}
    drain = ServerSettings(**{name: getattr(settings, name) for name in names}).drain_total_ms / 1000
    for name in GATEWAYS:
        assert seconds(service(name)["stop_grace_period"]) > drain


def test_nginx_fits_the_gateways(settings: Settings) -> None:
    """Addresses, ports, time-outs and sizes of nginx.conf are those of the gateways it stands in front of."""
    port = stages(DOCKERFILE.read_text())[-1].last("EXPOSE").rest
    servers = [server for server in values("server") if ":" in server]
    assert [server.split()[0] for server in servers] == [f"{_address(name)}:{port}" for name in GATEWAYS]
    assert settings.trusted_proxies == _address("nginx")
    heartbeat_s = (settings.heartbeat_ms + settings.heartbeat_timeout_ms) / 1000
    assert number("proxy_read_timeout") > heartbeat_s
    assert number("proxy_send_timeout") > heartbeat_s
    assert number("send_timeout") > settings.slow_timeout_ms / 1000
    assert values("client_max_body_size")[-1] == "4m"
    assert settings.max_publish_bytes == 4 * 1024**2
    assert number("client_header_timeout") == settings.header_timeout_ms / 1000
    assert values("large_client_header_buffers") == [f"4 {settings.max_header_bytes // 1024}k"]
    # `keepalive_timeout` of the upstream; the one towards clients is left at nginx's default.
    assert number("keepalive_timeout") < ServerSettings().keep_alive_ms / 1000
    assert number("proxy_connect_timeout") < 2
    for server in servers:
        out_for = re.search(r"max_fails=1 fail_timeout=(\d+)s", server)
        assert out_for
        assert int(out_for[1]) < settings.drain_grace_ms / 1000


def test_there_are_enough_descriptors_and_ports(settings: Settings) -> None:
    """For every session a gateway takes: in the gateway, in nginx (two each), and a port between them."""
    linux_ports = 60_999 - 32_768
    for name in GATEWAYS:
        assert service(name)["ulimits"]["nofile"] >= settings.max_connections + 128
    assert settings.max_connections < linux_ports
    assert service("nginx")["ulimits"]["nofile"] > number("worker_connections")
    assert number("worker_connections") >= 2 * settings.max_connections


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    """To a version of three numbers: a container that is made anew tomorrow is the one that was tried today."""
    assert re.search(r":\d+\.\d+\.\d+(-[a-z.0-9]+)?$", service(name)["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_locked_down(name: str) -> None:
    """No root, nothing to write to but what is named, no rights to gain, bounded logs, a deadline to stop."""
    found = service(name)
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert "cap_add" not in found
    assert "privileged" not in found
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert found["logging"]["driver"] == "local"
    assert found["ulimits"]["nofile"] > 1024
    if name in GATEWAYS:
        assert min(stages(DOCKERFILE.read_text())[-1].user) > 0
    else:
        assert not found["user"].startswith("0")
        assert found["healthcheck"]["test"]


def test_only_nginx_can_be_reached_from_outside() -> None:
    """And its side for publishers from this machine only. Valkey and the gateways have no way out either."""
    found = load()
    ports = {name: service(name)["ports"] for name in SERVICES if "ports" in service(name)}
    assert list(ports) == ["nginx"]
    for port in ports["nginx"]:
        assert port.endswith(":8080") or port.startswith("127.0.0.1:")
    assert found["networks"]["back"]["internal"] is True
    for name in ("valkey", *GATEWAYS):
        assert list(service(name)["networks"]) == ["back"]


def test_every_file_and_secret_is_there() -> None:
    """What is mounted is in this folder; secrets are those that secrets.sh makes, and git does not take them."""
    found = load()
    for name in SERVICES:
        for mount in service(name).get("volumes", []):
            source = mount.split(":")[0]
            assert source in found["volumes"] or (COMPOSE.parent / source).is_file(), mount
        assert set(service(name).get("secrets", [])) <= set(found["secrets"])
    script = (COMPOSE.parent / "secrets.sh").read_text()
    for name, secret in found["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
        assert f"make {name} " in script
    assert f"@{_address('valkey')}:6379" in script
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().split()


def test_valkey_is_told_by_its_file_alone() -> None:
    """A flag beside the file would overrule it unseen."""
    found: dict[str, Any] = service("valkey")
    assert found["command"] == ["valkey-server", "/etc/valkey.conf"]
    assert "./valkey.conf:/etc/valkey.conf:ro" in found["volumes"]
    assert "valkey-data:/data" in found["volumes"]
