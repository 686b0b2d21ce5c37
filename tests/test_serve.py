"""The HTTP service: what clients of LibreTranslate ask of it, keys, and what it tells of itself."""

from __future__ import annotations

from typing import Any

import pytest
from serving import SENTENCES, client_of, direct, lines, post, refused
from starlette.testclient import TestClient

from dynctx.model_folder import Model

pytest_plugins = ("serve_fixtures",)


# POST /translate, as LibreTranslate has it


def test_a_string(client: TestClient, model: Model) -> None:
    answer = post(client, q="the cat sat", source="en", target="de")
    assert answer.status_code == 200
    assert answer.json() == {"translatedText": lines(direct(model, ["the cat sat"]))[0]}


def test_a_list_is_one_document(client: TestClient, model: Model) -> None:
    answer = post(client, q=SENTENCES, source="en", target="de")
    assert answer.json() == {"translatedText": lines(direct(model, SENTENCES))}
    assert lines(direct(model, SENTENCES)) != [lines(direct(model, [s]))[0] for s in SENTENCES]  # context mattered


def test_the_lines_of_a_string_are_a_document_and_keep_their_layout(client: TestClient, model: Model) -> None:
    first, second, third = lines(direct(model, SENTENCES[:3]))
    answer = post(client, q="  the cat sat\r\n\na dog ran\n\tit rains today \n", source="en", target="de")
    assert answer.json()["translatedText"] == f"  {first}\r\n\n{second}\n\t{third} \n"


@pytest.mark.parametrize("text", ["", " ", "\n\n", " \t\n"])
def test_nothing_to_translate(client: TestClient, text: str) -> None:
    assert post(client, q=text, source="en", target="de").json() == {"translatedText": text}
    assert post(client, q=[text], source="en", target="de").json() == {"translatedText": [text]}
    assert post(client, q=[], source="en", target="de").json() == {"translatedText": []}


def test_html_keeps_its_tags(client: TestClient, model: Model) -> None:
    page = (
        '<p class="x">the cat sat</p>\n<!-- a dog --><script>a < b</script><br> a dog ran &amp; <b>it rains today</b>'
    )
    first, second = lines(direct(model, ["the cat sat", "a dog ran & it rains today"]))
    found = post(client, q=page, source="en", target="de", format="html").json()["translatedText"]
    assert found.startswith(f'<p class="x">{first}</p>\n<!-- a dog --><script>a < b</script><br> ')
    assert found.replace("<b>", "").replace("</b>", "").endswith(f"<br> {second}")  # one sentence, with its tags in it
    assert found.count("<b>") == found.count("</b>") == 1


def test_the_source_language_may_be_left_to_the_service(client: TestClient) -> None:
    answer = post(client, q="the cat", source="auto", target="de").json()
    assert answer["detectedLanguage"] == {"confidence": 100.0, "language": "en"}
    answer = post(client, q=["the cat", "собака", "ab!?дог"], source="auto", target="de").json()
    assert answer["detectedLanguage"] == [{"confidence": c, "language": "en"} for c in (100.0, 0.0, 40.0)]
    assert "detectedLanguage" not in post(client, q="the cat", source="en", target="de").json()


def test_languages_with_a_region(client: TestClient) -> None:
    assert post(client, q="the cat", source="en-GB", target="DE_AT").status_code == 200


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("fr", "de", "fr is not supported as source; this model reads en"),
        ("en", "en", "en is not supported as target; this model writes de"),
        ("en", "auto", "auto is not supported as target; this model writes de"),
    ],
)
def test_other_languages(client: TestClient, source: str, target: str, reason: str) -> None:
    assert refused(post(client, q="the cat", source=source, target=target), 400) == reason


def test_alternatives_are_asked_for_in_vain(client: TestClient) -> None:
    assert post(client, q="the cat", source="en", target="de", alternatives=3).json()["alternatives"] == []
    several = post(client, q=["the cat", "a dog"], source="en", target="de", alternatives=3)
    assert several.json()["alternatives"] == [[], []]  # one list for each text, as LibreTranslate has it


def test_forms(client: TestClient, model: Model) -> None:
    fields = {"q": "the cat sat", "source": "en", "target": "de", "format": "text"}
    expected = {"translatedText": lines(direct(model, ["the cat sat"]))[0]}
    assert client.post("/translate", data=fields).json() == expected
    assert client.post("/translate", files={name: (None, value) for name, value in fields.items()}).json() == expected
    both = "q=the+cat+sat&q=a%20dog%20ran&source=en&target=de"
    answer = client.post("/translate", content=both, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.json() == {"translatedText": lines(direct(model, SENTENCES[:2]))}


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"{", "application/json", "not JSON"),
        (b"", "application/json", "not JSON"),
        (b"[1]", "application/json", "not a JSON object"),
        (b"null", "", "not a JSON object"),
        (b"[" * 100_000, "application/json", "nested too deeply"),
        (b'{"q": ' + b"9" * 5000 + b"}", "application/json", "not JSON"),
        (b'{"q": "\xff\xfe"}', "application/json", "not UTF-8"),
        ('{"q": "the cat"}'.encode("utf-16"), "application/json", "not UTF-8"),
        (b"q=%ff&target=de", "application/x-www-form-urlencoded", "not UTF-8"),
        (b"q=\xff&target=de", "application/x-www-form-urlencoded", "not UTF-8"),
        (b"q=" + b"&q=" * 20_000, "application/x-www-form-urlencoded", "not a form"),
        (b"--x\r\n", "multipart/form-data", "not a form"),
        (
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
            "not UTF-8",
        ),
        (b'{"target": "de"}', "application/json", "q: Field required"),
        (b'{"q": "the cat"}', "application/json", "target: Field required"),
        (b'{"q": 3, "target": "de"}', "application/json", "q"),
        (b'{"q": ["a", 3], "target": "de"}', "application/json", "q"),
        (b'{"q": "a", "target": "de", "format": "pdf"}', "application/json", "format"),
        (b'{"q": "a", "target": "de", "source": null}', "application/json", "source"),
        (
            b'{"q": "\\ud800", "target": "de"}',
            "application/json",
            "the body is not valid Unicode (half of a surrogate pair)",
        ),
        (
            b'{"format": "html", "q": "<p>\\udfff</p>", "target": "de"}',
            "application/json",
            "the body is not valid Unicode",
        ),
        (b'{"q": "a", "target": "\\ud800"}', "application/json", "the body is not valid Unicode"),
    ],
)
def test_broken_bodies(client: TestClient, body: bytes, kind: str, reason: str) -> None:
    answer = client.post("/translate", content=body, headers={"content-type": kind} if kind else {})
    assert reason in refused(answer, 400)


def test_detection(client: TestClient) -> None:
    assert post(client, "/detect", q="the cat").json() == [{"confidence": 100.0, "language": "en"}]
    assert post(client, "/detect", q="3 + 4").json() == [{"confidence": 0.0, "language": "en"}]


def test_languages_and_settings(client: TestClient) -> None:
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    settings = client.get("/frontend/settings").json()
    assert settings["keyRequired"] is False
    assert settings["language"]["target"] == {"code": "de", "name": "German"}


# keys


def test_pages_of_other_sites(model: Model) -> None:
    """A browser asks first, and lets a page read an answer only where the service names its site."""
    asks = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    with client_of(model) as client:
        assert client.options("/translate", headers=asks).status_code == 405
        assert "access-control-allow-origin" not in client.get("/languages", headers=asks).headers
    with client_of(model, origins=["https://a.example"]) as client:
        told = client.options("/translate", headers=asks | {"Access-Control-Request-Headers": "content-type"})
        assert (told.status_code, told.headers["access-control-allow-origin"]) == (200, "https://a.example")
        answer = client.get("/languages", headers=asks)
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        other = client.get("/languages", headers={"Origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_a_key_is_needed(model: Model) -> None:
    with client_of(model, api_key="geheim äö") as client:
        fields = {"q": "the cat", "source": "en", "target": "de"}
        assert refused(post(client, **fields), 401).startswith("an API key is needed")
        assert refused(post(client, **fields, api_key=""), 401)
        assert post(client, **fields).headers["www-authenticate"] == "Bearer"
        assert refused(post(client, **fields, api_key="geheim"), 403) == "the API key is not valid"
        assert refused(client.post("/translate", data={**fields, "api_key": "nein"}), 403)
        assert refused(post(client, "/v1/documents", sentences=["a"], api_key="nein"), 403)
        assert refused(post(client, "/detect", q="a"), 401)
        assert refused(client.post("/translate", json=fields, headers={"Authorization": "Basic geheim"}), 401)
        assert refused(client.post("/translate", json=fields, headers={"Authorization": "Bearer nein"}), 403)
        assert post(client, **fields, api_key="geheim äö").status_code == 200
        assert client.post("/translate", data={**fields, "api_key": "geheim äö"}).status_code == 200
        assert post(client, "/v1/documents", sentences=["a"], api_key="geheim äö").status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is True
        assert client.get("/v1/model").json()["key_required"] is True
        for path in ("/", "/languages", "/health", "/metrics"):  # tell nothing that is secret
            assert client.get(path).status_code == 200


def test_a_key_in_the_header(model: Model) -> None:
    with client_of(model, api_key="geheim") as client:
        header = {"Authorization": "bearer  geheim"}
        assert client.post("/v1/documents", json={"sentences": ["a"]}, headers=header).status_code == 200


# what it tells of itself


def test_state(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    post(client, q=["the cat", "a dog"], source="en", target="de")
    found = client.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    counts = dict(line.rsplit(" ", 1) for line in found.text.splitlines() if not line.startswith("#"))
    assert float(counts["dynctx_sentences_total"]) >= 2
    assert counts["dynctx_waiting_sentences"] == "0.0"
    assert float(counts['dynctx_requests_total{path="/translate",status="200"}']) >= 1
    client.get("/nothing/here/1")
    client.get("/nothing/here/2")
    assert 'path="other",status="404"' in client.get("/metrics").text  # one count for all that does not exist


def test_health_while_stopping(model: Model) -> None:
    with client_of(model) as client:
        client.service.batcher.close()  # type: ignore[attr-defined]
        assert refused(client.get("/health"), 503) == "the service is stopping"
        assert refused(post(client, q="the cat", source="en", target="de"), 503) == "the service is stopping"


def test_what_is_not_there(client: TestClient) -> None:
    assert refused(client.get("/nothing"), 404) == "Not Found"
    assert refused(client.get("/static/../app.py"), 404)
    assert refused(client.get("/static/%2e%2e/app.py"), 404)
    assert refused(client.get("/translate"), 405) == "Method Not Allowed"


def test_a_fault_outside_the_batcher_tells_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise RuntimeError("secret")

    with client_of(model) as client:
        monkeypatch.setattr(client.service, "check_sentences", fails)  # type: ignore[attr-defined]
        answer = post(client, q="a dog ran", source="en", target="de")
        assert refused(answer, 500) == "a fault of the service; its log says more"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_model_is_described(client: TestClient) -> None:
    found = client.get("/v1/model").json()
    assert found["source"]["code"] == "en" and found["target"]["name"] == "German"
    assert (found["kind"], found["scope"], found["selector"], found["scorer"]) == (
        "tdnmt",
        3,
        "probability-first",
        True,
    )
    assert found["limits"] == {"body_bytes": 2097152, "sentences": 1000, "characters": 2000}


def test_openapi(client: TestClient) -> None:
    found = client.get("/openapi.json").json()
    paths = {"/translate", "/detect", "/languages", "/v1/documents", "/v1/files/read", "/v1/files/write"}
    paths |= {"/v1/model", "/health", "/metrics"}
    assert set(found["paths"]) == paths
    body = found["paths"]["/v1/documents"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {
        *("sentences", "selector", "selection", "numbers", "translate", "stream", "api_key")
    }
    assert "413" in found["paths"]["/translate"]["post"]["responses"]


@pytest.mark.parametrize("path", ["/", "/docs", "/static/page.js", "/static/page.css", "/health", "/nothing"])
def test_nothing_is_loaded_from_elsewhere(client: TestClient, path: str) -> None:
    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy and "http" not in policy
    for word in ("https://", "http://", "//cdn", "@import", " onclick=", " style=", "<style"):
        assert word not in answer.text.replace("http://www.w3.org/2000/svg", "")
