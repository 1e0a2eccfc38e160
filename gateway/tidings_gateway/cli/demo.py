"""`tidings demo`: two gateways, a worker and a page to watch a job in, through restarts and a frozen Redis."""

from __future__ import annotations

import click


@click.command(short_help="Two gateways, a worker, and a page to break things in.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="The next free one if taken."
)
def demo(port: int) -> int:
    """Show it: a page that starts jobs, with buttons to cut it off, restart a gateway and freeze Redis meanwhile.

    Nothing needs to be installed or set; settings in the environment do not count here. Ctrl-C ends it all.
    """
    from tidings_gateway.cli.dev import free_port_from
    from tidings_gateway.demo.main import run_demo
    from tidings_gateway.telemetry.logs import setup_logging

    setup_logging("warning", "text")
    port = free_port_from(port)
    click.echo("Starting a Valkey and two gateways …")
    return run_demo(port)
