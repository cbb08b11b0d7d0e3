"""Commands that run on: MGMT."""

import click

from usher.cli.app import App, pass_app


@click.command()
@click.option(
    "--bind",
    default="127.0.0.1:8411",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 takes any that is free.",
)
@click.option("--insecure", is_flag=True, help="Let other machines and names in without tokens.")
@pass_app
def mgmt(app: App, bind: str, *, insecure: bool) -> None:
    """Serve the HTTP API until told to stop; prints its address when it is ready.

    \b
    TERM or Ctrl-C lets requests under way end and leaves with exit code 0; a second one stops now.

    \b
    Examples:
      usher mgmt
      usher mgmt --bind 127.0.0.1:0
      curl -d '{"urls": ["https://example.com/"]}' http://127.0.0.1:8411/v1/knock
    """
    import asyncio

    from usher.telemetry import set_up_logging
    from usher.web.server import new_loop, read_bind, serve

    settings = app.settings
    set_up_logging(level=settings.log_level, form=settings.log_format)
    where = read_bind(bind)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(settings, where, insecure=insecure, ready=click.echo))
