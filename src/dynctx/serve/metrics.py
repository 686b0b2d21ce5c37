"""What the service counts, in the text format of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """One set for each service, not one for the process, so that services in one process keep apart."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.requests = Counter("dynctx_requests", "Requests answered.", ["path", "status"], registry=registry)
        self.request_seconds = Histogram(
            "dynctx_request_seconds",
            "From request to the end of its answer.",
            ["path"],
            registry=registry,
            buckets=SECONDS,
        )
        self.sentences = Counter("dynctx_sentences", "Sentences translated.", registry=registry)
        self.waiting = Gauge("dynctx_waiting_sentences", "Sentences waiting to be translated.", registry=registry)
        self.batch_sentences = Histogram(
            "dynctx_batch_sentences", "Sentences translated together.", registry=registry, buckets=SIZES
        )
        self.batch_requests = Histogram(
            "dynctx_batch_requests", "Requests that had a part in a batch.", registry=registry, buckets=SIZES
        )
        self.batch_seconds = Histogram(
            "dynctx_batch_seconds", "Time to translate a batch.", registry=registry, buckets=SECONDS
        )
        self.abandoned = Counter(
            "dynctx_abandoned", "Requests whose client left or whose time ran out.", registry=registry
        )
        self.failed = Counter(
            "dynctx_failed", "Requests that failed through a fault of the service.", registry=registry
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
