"""Every series by process: type, labels, the values of labels; the text form, taken apart."""

import collections
import re

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# Type and labels beside model_name.
GATEWAY = {
    "tessera_gateway_requests_total": (COUNTER, "method code stream"),
    "tessera_gateway_inflight_requests": (GAUGE, ""),
    "tessera_gateway_queued_requests": (GAUGE, ""),
    "tessera_gateway_request_duration_seconds": (HISTOGRAM, "stream error_type"),
    "tessera_gateway_time_to_first_token_seconds": (HISTOGRAM, "image_cache"),
    "tessera_gateway_inter_token_latency_seconds": (HISTOGRAM, ""),
    "tessera_gateway_time_per_output_token_seconds": (HISTOGRAM, ""),
    "tessera_gateway_request_prompt_tokens": (HISTOGRAM, ""),
    "tessera_gateway_request_image_tokens": (HISTOGRAM, ""),
    "tessera_gateway_request_output_tokens": (HISTOGRAM, ""),
    "tessera_gateway_request_images": (HISTOGRAM, ""),
    "tessera_gateway_image_bytes": (HISTOGRAM, ""),
    "tessera_gateway_rejected_requests_total": (COUNTER, "reason"),
    "tessera_gateway_degraded_requests_total": (COUNTER, "step"),
    "tessera_gateway_client_cancellations_total": (COUNTER, "phase"),
}
VISION = {
    "tessera_vision_images_total": (COUNTER, "outcome"),
    "tessera_vision_batches_total": (COUNTER, ""),
    "tessera_vision_batch_images": (HISTOGRAM, ""),
    "tessera_vision_queued_images": (GAUGE, ""),
    "tessera_vision_stage_duration_seconds": (HISTOGRAM, "stage"),
    "tessera_vision_rows_total": (COUNTER, "kind"),
    "tessera_vision_quality_total": (COUNTER, "verdict reason"),
}
DECODE = {
    "tessera_decode_requests_running": (GAUGE, ""),
    "tessera_decode_requests_waiting": (GAUGE, ""),
    "tessera_decode_kv_cache_usage_ratio": (GAUGE, ""),
    "tessera_decode_kv_cache_blocks": (GAUGE, "state"),
    "tessera_decode_cache_config_info": (GAUGE, "block_size num_blocks cache_dtype"),
    "tessera_decode_prefix_cache_queries_total": (COUNTER, ""),
    "tessera_decode_prefix_cache_hits_total": (COUNTER, ""),
    "tessera_decode_prefix_cache_evicted_tokens_total": (COUNTER, ""),
    "tessera_decode_nonfinite_logits_total": (COUNTER, ""),
    "tessera_decode_ahead_tokens_total": (COUNTER, "outcome"),
    "tessera_decode_prompt_tokens_total": (COUNTER, "source"),
    "tessera_decode_generation_tokens_total": (COUNTER, ""),
    "tessera_decode_requests_finished_total": (COUNTER, "finished_reason"),
    "tessera_decode_preemptions_total": (COUNTER, ""),
    "tessera_decode_request_queue_seconds": (HISTOGRAM, ""),
    "tessera_decode_request_prefill_seconds": (HISTOGRAM, ""),
    "tessera_decode_request_decode_seconds": (HISTOGRAM, ""),
    "tessera_decode_step_tokens": (HISTOGRAM, "phase"),
    "tessera_decode_step_duration_seconds": (HISTOGRAM, "phase"),
}
CACHE = {  # of whoever keeps records
    "tessera_embedding_cache_lookups_total": (COUNTER, "tier result"),
    "tessera_embedding_cache_up": (GAUGE, "tier"),
}
STORE = {  # where they are shared by a Redis
    "tessera_embedding_cache_operation_duration_seconds": (HISTOGRAM, "tier operation"),
    "tessera_embedding_cache_transferred_bytes_total": (COUNTER, "direction"),
    "tessera_embedding_cache_failed_writes_total": (COUNTER, "reason"),
}
OF_A_MODEL = {  # of whoever has one
    "tessera_model_load_duration_seconds": (GAUGE, ""),
    "tessera_canary_present": (GAUGE, ""),
    "tessera_device_memory_bytes": (GAUGE, "device kind"),
    "tessera_model_info": (GAUGE, "quantization revision digest"),
}
EVERYBODY = {
    "tessera_draining": (GAUGE, ""),
    "tessera_log_lines_dropped_total": (COUNTER, ""),
    "tessera_trace_spans_dropped_total": (COUNTER, ""),
    "tessera_start_timestamp_seconds": (GAUGE, ""),
    "tessera_build_info": (GAUGE, "version"),
    "grpc_server_call_started_total": (COUNTER, "grpc_method"),
    "grpc_server_call_duration_seconds": (HISTOGRAM, "grpc_method grpc_status"),
    "process_cpu_seconds_total": (COUNTER, ""),
    "process_resident_memory_bytes": (GAUGE, ""),
    "process_virtual_memory_bytes": (GAUGE, ""),
    "process_open_fds": (GAUGE, ""),
    "process_max_fds": (GAUGE, ""),
    "process_start_time_seconds": (GAUGE, ""),
}
# Of these a process has more than 0 before its first request.
NOT_ZERO = re.compile(r"process_|.*_info$|tessera_(device|start|model_load|embedding_cache_up|decode_kv_cache_blocks)")
# Whoever serves asks its services what they are, and how they do.
ASKED_AT_START = ("/GetInfo", "/WatchLoad")
# The values of a label that are there from the start.
VALUES = {
    ("tessera_gateway_requests_total", "method"): "Generate GenerateStream UploadImage",
    ("tessera_gateway_requests_total", "stream"): "true false",
    ("tessera_gateway_request_duration_seconds", "stream"): "true false",
    ("tessera_gateway_time_to_first_token_seconds", "image_cache"): "none prefix_kv local store origin computed",
    ("tessera_gateway_rejected_requests_total", "reason"): "queue_full quota too_large draining deadline quality",
    ("tessera_gateway_degraded_requests_total", "step"): "rows output redirect",
    ("tessera_vision_stage_duration_seconds", "stage"): "queue decode quality preprocess encode store",
    ("tessera_vision_rows_total", "kind"): "produced kept",
    ("tessera_decode_kv_cache_blocks", "state"): "used cached free",
    ("tessera_decode_ahead_tokens_total", "outcome"): "used wasted",
    ("tessera_decode_prompt_tokens_total", "source"): "computed cached",
    ("tessera_decode_requests_finished_total", "finished_reason"): "stop length abort error",
    ("tessera_embedding_cache_lookups_total", "result"): "hit miss error rejected",
    ("tessera_embedding_cache_transferred_bytes_total", "direction"): "read write",
    ("tessera_device_memory_bytes", "kind"): "weights kv_cache workspace other",
}


class Scrape:
    """The text form, taken apart."""

    LINE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)$')

    def __init__(self, text):
        self.types, self.series = {}, []  # (family, suffix, labels, value)
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                self.types[name] = kind
            elif not line.startswith("#"):
                name, labels, value = self.LINE.match(line).groups()
                family, suffix = name, ""
                for end in ("_bucket", "_sum", "_count"):
                    if name.endswith(end) and self.types.get(name[:-len(end)]) == HISTOGRAM:
                        family, suffix = name[:-len(end)], end
                self.series.append((family, suffix, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)))

    def sum(self, name, suffix="", **labels):
        return sum(value for family, end, have, value in self.series
                   if (family, end) == (name, suffix) and labels.items() <= have.items())

    def by(self, name, label, suffix="", **labels):
        sums = collections.Counter()
        for family, end, have, value in self.series:
            if (family, end) == (name, suffix) and labels.items() <= have.items():
                sums[have[label]] += value
        return {key: value for key, value in sums.items() if value}

    def labels(self, name):
        """The names of labels beside model_name and a bucket's bound: a set for each kind of series of this name."""
        found = set()
        for family, suffix, have, _ in self.series:
            if family == name:
                found.add(frozenset(have) - {"model_name"} - ({"le"} if suffix == "_bucket" else set()))
        return found

    def values(self, name, label):
        return {have[label] for family, _, have, _ in self.series if family == name}


def check_fresh(test, page, table, model_name):
    """The page of a process of whom nobody has asked anything has these series and no more."""
    test.maxDiff = None
    test.assertEqual({name: kind for name, (kind, _) in table.items()}, page.types)
    for name, (_, expected) in table.items():
        test.assertEqual(page.labels(name), {frozenset(expected.split())}, name)
        for label in expected.split():
            if (name, label) in VALUES:
                test.assertEqual(page.values(name, label), set(VALUES[name, label].split()), (name, label))
    for family, suffix, labels, value in page.series:
        test.assertEqual(labels["model_name"], model_name)
        asked_at_start = labels.get("grpc_method", "").endswith(ASKED_AT_START)
        if not NOT_ZERO.match(family) and not asked_at_start:
            test.assertEqual(value, 0, (family, suffix, labels))
