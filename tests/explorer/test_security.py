"""No page of another site can use the server, and nothing but the explorer's own files runs."""

import asyncio
import http.client
import json
import socket
import struct
import time
import tracemalloc

import pytest

from thalweg.explorer.security import CSV_BYTES, JSON_BYTES, Guarded
from thalweg.explorer.streams import MOST_STREAMS

SETTING = {"tab": "a", "number": 1, "setting": {}, "want": ["descent"]}
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


def test_it_listens_on_this_machine_alone(page):
    assert page.explorer._socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/", "/api/hello", "/{}x/api/hello", "/{}", "/%00/api/hello"])
def test_a_wrong_token_is_refused(page, path):
    token = page.path.strip("/")
    answer = page.ask("GET", path.format(token[:-1]))
    assert answer.status == 403
    assert "token" in answer.json["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://{host}"}, 200),
        ({"sec_fetch_site": "same-origin", "origin": "http://{host}"}, 200),
        ({"origin": "https://example.org"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://{host}"}, 403),
        ({"origin": "http://{host}.example.org"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"host": "example.org"}, 403),
        ({"host": "127.0.0.1"}, 403),
        ({"host": "evil.{host}"}, 403),
    ],
)
def test_only_the_page_itself_may_ask(page, headers, status):
    told = {name: value.format(host=page.host) for name, value in headers.items()}
    assert page.ask("GET", "api/hello", **told).status == status
    answer = page.post("api/export/toml", {"setting": {}}, **told)
    assert answer.status == status
    if status == 403:
        assert answer.json["error"].endswith(".")
        assert "access-control-allow-origin" not in answer.headers


def test_a_browser_is_not_told_that_others_may_post(page):
    """What a browser asks before it lets another site post JSON."""
    answer = page.ask(
        "OPTIONS", "api/compute", origin="https://example.org", access_control_request_method="POST"
    )
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_what_a_form_can_send_is_refused(page, kind):
    for path, wanted in (("api/compute", "application/json"), ("api/data", "text/csv")):
        answer = page.ask("POST", path, b"{}", content_type=kind)
        assert answer.status == 415
        assert wanted in answer.json["error"]


@pytest.mark.parametrize(
    ("path", "kind", "limit"),
    [("api/compute", "application/json", JSON_BYTES), ("api/data", "text/csv", CSV_BYTES)],
)
def test_a_huge_body_is_refused(page, path, kind, limit):
    answer = page.ask("POST", path, b" " * (limit + 1), content_type=kind)
    assert answer.status == 413
    assert f"{limit:,}" in answer.json["error"]


def test_a_huge_body_of_no_announced_length_is_cut_off(page):
    connection = http.client.HTTPConnection(page.host, timeout=30)
    connection.request(
        "POST", page.path + "api/compute", iter([b" " * 2**14] * 8),
        {"content-type": "application/json"}, encode_chunked=True,
    )  # fmt: skip
    answer = connection.getresponse()
    assert answer.status == 413
    answer.read()
    connection.close()


def asked_directly(guarded, headers, chunks=(b"",)):
    """The status of a request that is made without a socket."""
    sent, coming = [], list(chunks)

    async def receive():
        part = coming.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(coming)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/t/api/compute",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    asyncio.run(guarded(scope, receive, send))
    return sent[0]["status"]


async def _fine(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_what_is_refused_is_not_kept():
    """Whoever it comes from: 40 MB that a page of another site sends take next to no memory."""
    guarded = Guarded(_fine, "t", lambda: 8427)
    part = b" " * 2**20
    tracemalloc.start()
    status = asked_directly(guarded, {"host": "example.org:8427"}, [part] * 40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert status == 403
    assert peak < 4 * 2**20


@pytest.mark.parametrize(
    ("port", "host", "status"),
    [(80, "127.0.0.1", 200), (80, "localhost", 200), (8427, "127.0.0.1", 403),
     (8427, "127.0.0.1:8427", 200), (80, "127.0.0.1:8427", 403)],
)  # fmt: skip
def test_the_port_of_http_is_not_named_by_browsers(port, host, status):
    headers = {"host": host, "origin": f"http://{host}", "content-type": "application/json"}
    assert asked_directly(Guarded(_fine, "t", lambda: port), headers) == status


def test_a_page_may_go_at_any_time_and_leaves_room_for_others(page):
    """More than may wait at a time: each hangs up as soon as it has asked."""
    body = json.dumps(SETTING | {"want": ["descent", "phase"]}).encode()
    head = (
        f"POST {page.path}api/compute HTTP/1.1\r\nHost: {page.host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    address = page.explorer._socket.getsockname()
    for _ in range(MOST_STREAMS + 8):
        with socket.create_connection(address) as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            asking.sendall(head.encode() + body)
    end = time.monotonic() + 20  # until all have been noticed
    while (answer := page.request({"network": {"depth": 2}}, "descent")).status == 429:
        assert time.monotonic() < end, "they are waited for"
        time.sleep(0.2)
    assert answer.status == 200


def test_unknown_fields_are_refused_in_a_sentence(page):
    for values, field in (
        (SETTING | {"more": 1}, "more"),
        (SETTING | {"setting": {"output": {"folder": "/"}}}, "output"),
        (SETTING | {"setting": {"network": {"dept": 3}}}, "network.dept"),
        (SETTING | {"setting": {"training": {"learning_rate": [-1.0]}}}, None),
        (SETTING | {"setting": {"training": {"learning_rate": [float("nan")]}}}, None),
        (SETTING | {"phase": {"path": "/"}}, "path"),
        (SETTING | {"want": ["everything"]}, "want"),
        (SETTING | {"want": [["descent"]]}, "want"),
        (SETTING | {"want": []}, "want"),
        (SETTING | {"tab": ""}, "tab"),
        (SETTING | {"number": "1"}, "number"),
        ([], None),
    ):
        answer = page.post("api/compute", values)
        assert answer.status == 400, values
        assert answer.json["error"][-1] in ".?", answer.json
        assert "\n" not in answer.json["error"]
        if field is not None:
            assert field in answer.json["error"]
            assert answer.json["field"] == field


def test_what_is_no_json_is_refused(page):
    for body in (b"", b"{", b"\xff\xfe", b"[" * 20_000, b"1"):
        answer = page.ask("POST", "api/compute", body, content_type="application/json")
        assert answer.status == 400, body[:10]


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../settings.csv", "table.csv", "data-0123456789.csv"],
)
def test_a_page_cannot_have_other_files_read(page, path):
    data = {"source": "csv", "path": path, "target": ["y"]}
    answer = page.post("api/compute", SETTING | {"setting": {"data": data}})
    assert answer.status == 400
    assert answer.json["field"] == "data.path"


@pytest.mark.parametrize(
    "path", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", ".hidden.js", "/", "../page", "app.py"]
)
def test_files_outside_of_the_page_are_not_served(page, path):
    assert page.ask("GET", page.path + path).status in (403, 404)


def test_every_answer_has_its_headers(page):
    answers = [
        page.ask("GET", "api/hello"), page.ask("GET", "nowhere.js"), page.ask("GET", "/"),
        page.post("api/export/toml", {"setting": {}}), page.post("api/compute", {}),
    ]  # fmt: skip
    for answer in answers:
        assert answer.headers.items() >= HEADERS.items()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "server" not in answer.headers
