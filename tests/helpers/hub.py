"""A stand-in for the Hugging Face hub, served from this process."""

import hashlib
import http.server
import json
import threading
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.ThreadingHTTPServer):
    """A server of repositories like the Hugging Face hub: <folder>/<model>/... and <folder>/datasets/<data set>/...

    broken_after: bytes that it sends in all before it refuses every request. damaged: whether the first byte of each
    answer is wrong. ranges: the byte ranges that were requested.
    """

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.broken_after, self.damaged, self.ranges = None, False, []
        contents = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
        self.files = {name: (content, hashlib.sha256(content).hexdigest()) for name, content in contents.items()}
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self, asked: list[str] | None = None):
        path = unquote(self.path.partition("?")[0]).removeprefix("/api").removeprefix("/models").strip("/")
        length = 3 if path.startswith("datasets/") else 2
        parts = path.split("/")
        repository, name = "/".join(parts[:length]), "/".join(parts[length + 2 :])
        kind = parts[length] if len(parts) > length else ""
        start = f"{repository}/"
        files = {path.removeprefix(start): file for path, file in self.server.files.items() if path.startswith(start)}
        if kind == "resolve" and name in files:
            self.send_file(*files[name])
        elif kind in ("tree", "paths-info"):
            listed = [self.describe(name, *file) for name, file in files.items() if asked is None or name in asked]
            self.send(200, json.dumps(listed).encode(), Content_Type="application/json")
        elif kind in ("", "revision") and files:
            about = {"id": repository.removeprefix("datasets/"), "sha": COMMIT, "private": False, "tags": []}
            about |= {"siblings": [{"rfilename": name} for name in files], "downloads": 0, "likes": 0}
            self.send(200, json.dumps(about).encode(), Content_Type="application/json")
        else:
            self.send(404, b"", X_Error_Code="EntryNotFound")

    def do_POST(self):
        self.do_GET(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["paths"])

    def describe(self, name: str, content: bytes, sha256: str) -> dict:
        large = {"oid": sha256, "size": len(content), "pointerSize": 134}
        return {"type": "file", "path": name, "size": len(content), "oid": sha256[:40], "lfs": large}

    def send_file(self, content: bytes, sha256: str):
        code, headers = 200, {"ETag": f'"{sha256}"', "X_Repo_Commit": COMMIT, "Accept_Ranges": "bytes"}
        if asked := self.headers.get("Range"):
            first, last = asked.removeprefix("bytes=").split("-")
            first, last = int(first), min(int(last or len(content)), len(content) - 1)
            self.server.ranges.append((first, last))
            headers["Content_Range"] = f"bytes {first}-{last}/{len(content)}"
            content, code = content[first : last + 1], 206
        if self.server.damaged:
            content = bytes([content[0] ^ 255]) + content[1:]
        if self.command == "GET" and self.server.broken_after is not None:
            self.server.broken_after -= len(content)
            if self.server.broken_after < 0:
                return self.send(403, b"")
        self.send(code, content, **headers)

    def send(self, code: int, content: bytes, **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
