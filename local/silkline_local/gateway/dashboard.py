"""The built files of the dashboard, and the configuration that it needs to use this stack.

Owns all paths that are not the API's. Without a built dashboard, `/` says so.
"""

from pathlib import Path

import msgspec
from aiohttp import hdrs, web

from silkline_local.gateway.http import Refusal
from silkline_local.keys import Keys

NO_DASHBOARD = """Silkline's local stack is running.

  REST      /rest/v1
  Realtime  /realtime/v1

The dashboard is not part of this installation.
"""


class Dashboard:
    """Serves `directory`; a path that is not a file is a page of the single-page application."""

    def __init__(self, directory: Path | None, keys: Keys) -> None:
        self.directory = None if directory is None else directory.resolve()
        self._keys = keys

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_route('*', '/{service:auth|storage|functions|graphql}/v1', refuse_service)
        router.add_route(
            '*', '/{service:auth|storage|functions|graphql}/v1/{path:.*}', refuse_service
        )
        router.add_get('/config.json', self.show_config)
        router.add_get('/{path:.*}', self.show_file)

    async def show_config(self, request: web.Request) -> web.StreamResponse:
        """Return what a browser may know: the URL of the API, and the publishable key."""
        body = {
            'supabase_url': f'{request.scheme}://{request.host}',
            'supabase_publishable_key': self._keys.publishable,
        }
        return web.Response(
            body=msgspec.json.encode(body),
            content_type='application/json',
            headers={hdrs.CACHE_CONTROL: 'no-store'},
        )

    async def show_file(self, request: web.Request) -> web.StreamResponse:
        path: str = request.match_info['path']
        if path.startswith(('rest/', 'realtime/')):
            raise Refusal(404, {'message': f'the local stack has no {request.path}'})
        if self.directory is None:
            if path:
                raise Refusal(404, {'message': f'there is no {request.path}'})
            return web.Response(text=NO_DASHBOARD)
        try:
            file = (self.directory / path).resolve()
            is_file = file.is_file()
        except (OSError, ValueError) as error:
            # A name that no file system accepts: too long, or with a NUL.
            raise Refusal(404, {'message': 'there is no such file'}) from error
        if not file.is_relative_to(self.directory):
            raise Refusal(404, {'message': f'there is no {request.path}'})
        if is_file:
            # Vite puts a hash into names under assets/; everything else is revalidated.
            is_hashed = path.startswith('assets/')
            caching = 'public, max-age=31536000, immutable' if is_hashed else 'no-cache'
            return web.FileResponse(file, headers={hdrs.CACHE_CONTROL: caching})
        if file.suffix:
            raise Refusal(404, {'message': f'there is no {request.path}'})
        return web.FileResponse(
            self.directory / 'index.html', headers={hdrs.CACHE_CONTROL: 'no-cache'}
        )


async def refuse_service(request: web.Request) -> web.StreamResponse:
    """Say that the local stack does not have the service, and what replaces it."""
    service = request.match_info['service']
    message = f'the local stack has no {service}: see docs/reference/local-stack.md'
    if service == 'auth':
        # In the message, because clients show nothing else.
        message = 'the local stack has no Auth: silkline token <email> prints an access token'
    raise Refusal(404, {'message': message})
