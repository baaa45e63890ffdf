#pragma once

#include "common/metrics/metrics.h"

// Every series this product exports: name, help, labels besides model_name (label values in the
// help). Base units; counters end _total; no request id, digest, user or URL in a label.
namespace tessera::metrics {

// Upper bounds of buckets. Seconds unless said otherwise.
inline constexpr double kFirstTokenBuckets[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
                                                0.1,   0.25,  0.5,  0.75, 0.8,  1,    2.5,
                                                5,     7.5,   10,   20,   40,   80};
inline constexpr double kPerTokenBuckets[] = {0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025,
                                              0.03,  0.04,  0.05,  0.075, 0.1,  0.15,  0.2,  0.3,
                                              0.4,   0.5,   0.75,  1,     2.5,  5,     10};
inline constexpr double kRequestBuckets[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5,
                                             0.8,   1,    1.5,   2,    2.5, 5,   10,  15,
                                             20,    30,   40,    50,   60,  120, 240};
inline constexpr double kStoreBuckets[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                           0.025,  0.05,    0.1,    0.25,  0.5,    1};
inline constexpr double kTokenCountBuckets[] = {1,   2,    5,    10,   20,    50,    100,  200,
                                                500, 1000, 2000, 5000, 10000, 20000, 50000};
inline constexpr double kItemCountBuckets[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64};
inline constexpr double kByteBuckets[] = {1024,    4096,    16384,    65536,   262144,
                                          1048576, 4194304, 16777216, 67108864};

// --- gateway
inline constexpr CounterName kGatewayRequests{{"tessera_gateway_requests_total",
                                               "Requests answered, by gRPC status code.",
                                               {"method", "code", "stream"}}};
inline constexpr GaugeName kGatewayInflightRequests{
    {"tessera_gateway_inflight_requests", "Requests being handled."}};
inline constexpr GaugeName kGatewayQueuedRequests{
    {"tessera_gateway_queued_requests", "Requests that wait for their first token."}};
inline constexpr HistogramName kGatewayRequestDuration{
    {"tessera_gateway_request_duration_seconds",
     "Arrival of a request to the end of its answer.",
     {"stream", "error_type"}},
    kRequestBuckets};
inline constexpr HistogramName kGatewayTimeToFirstToken{
    {"tessera_gateway_time_to_first_token_seconds",
     "Arrival to first token. image_cache: none, prefix_kv, local, store, origin, computed.",
     {"image_cache"}},
    kFirstTokenBuckets};
inline constexpr HistogramName kGatewayInterTokenLatency{
    {"tessera_gateway_inter_token_latency_seconds", "Between two pieces of one answer."},
    kPerTokenBuckets};
inline constexpr HistogramName kGatewayTimePerOutputToken{
    {"tessera_gateway_time_per_output_token_seconds",
     "Mean time per token of an answer after its first."},
    kPerTokenBuckets};
inline constexpr HistogramName kGatewayRequestPromptTokens{
    {"tessera_gateway_request_prompt_tokens", "Prompt tokens of a request, image rows included."},
    kTokenCountBuckets};
inline constexpr HistogramName kGatewayRequestImageTokens{
    {"tessera_gateway_request_image_tokens", "Image rows in the prompt of a request."},
    kTokenCountBuckets};
inline constexpr HistogramName kGatewayRequestOutputTokens{
    {"tessera_gateway_request_output_tokens", "Tokens of an answer."}, kTokenCountBuckets};
inline constexpr HistogramName kGatewayRequestImages{
    {"tessera_gateway_request_images", "Pictures of a request."}, kItemCountBuckets};
inline constexpr HistogramName kGatewayImageBytes{
    {"tessera_gateway_image_bytes", "Encoded bytes of a picture."}, kByteBuckets};
inline constexpr CounterName kGatewayRejectedRequests{
    {"tessera_gateway_rejected_requests_total",
     "Requests refused. reason: queue_full, quota, too_large, draining, deadline, quality.",
     {"reason"}}};
inline constexpr CounterName kGatewayDegradedRequests{
    {"tessera_gateway_degraded_requests_total",
     "Requests whose work was changed to meet their deadline. step: rows, output, redirect.",
     {"step"}}};
inline constexpr CounterName kGatewayClientCancellations{
    {"tessera_gateway_client_cancellations_total", "Requests whose client went away.", {"phase"}}};

// --- vision
inline constexpr CounterName kVisionImages{
    {"tessera_vision_images_total", "Pictures handled.", {"outcome"}}};
inline constexpr CounterName kVisionBatches{
    {"tessera_vision_batches_total", "Batches the encoder ran."}};
inline constexpr HistogramName kVisionBatchImages{
    {"tessera_vision_batch_images", "Pictures of a batch."}, kItemCountBuckets};
inline constexpr GaugeName kVisionQueuedImages{
    {"tessera_vision_queued_images", "Pictures that wait for the encoder."}};
inline constexpr HistogramName kVisionStageDuration{
    {"tessera_vision_stage_duration_seconds",
     "Time of a stage. stage: queue, decode, quality, preprocess, encode, store.",
     {"stage"}},
    kRequestBuckets};
inline constexpr CounterName kVisionRows{
    {"tessera_vision_rows_total", "Image rows. kind: produced, kept.", {"kind"}}};
inline constexpr CounterName kVisionQuality{
    {"tessera_vision_quality_total", "Pictures judged.", {"verdict", "reason"}}};

// --- embedding cache
inline constexpr CounterName kEmbeddingCacheLookups{
    {"tessera_embedding_cache_lookups_total",
     "Look-ups. tier: local, store, origin; result: hit, miss, error, rejected.",
     {"tier", "result"}}};
inline constexpr HistogramName kEmbeddingCacheOperationDuration{
    {"tessera_embedding_cache_operation_duration_seconds",
     "Time of a get or put.",
     {"tier", "operation"}},
    kStoreBuckets};
inline constexpr CounterName kEmbeddingCacheTransferredBytes{
    {"tessera_embedding_cache_transferred_bytes_total",
     "Bytes of records to and from the shared store. direction: read, write.",
     {"direction"}}};
inline constexpr CounterName kEmbeddingCacheFailedWrites{
    {"tessera_embedding_cache_failed_writes_total",
     "Records that the shared store did not get. reason: refused, unavailable, too_large, dropped.",
     {"reason"}}};
inline constexpr GaugeName kEmbeddingCacheUp{
    {"tessera_embedding_cache_up", "1 while the tier answers.", {"tier"}}};

// --- decode
inline constexpr GaugeName kDecodeRequestsRunning{
    {"tessera_decode_requests_running", "Sequences in the batch."}};
inline constexpr GaugeName kDecodeRequestsWaiting{
    {"tessera_decode_requests_waiting", "Sequences that wait for the batch."}};
inline constexpr GaugeName kDecodeKvCacheUsage{
    {"tessera_decode_kv_cache_usage_ratio", "Share of KV blocks in use, 0 to 1."}};
inline constexpr GaugeName kDecodeKvCacheBlocks{
    {"tessera_decode_kv_cache_blocks", "KV blocks. state: used, cached, free.", {"state"}}};
inline constexpr GaugeName kDecodeCacheConfigInfo{{"tessera_decode_cache_config_info",
                                                   "Always 1; the KV cache's shape.",
                                                   {"block_size", "num_blocks", "cache_dtype"}}};
inline constexpr CounterName kDecodePrefixCacheQueries{
    {"tessera_decode_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."}};
inline constexpr CounterName kDecodePrefixCacheHits{
    {"tessera_decode_prefix_cache_hits_total", "Prompt tokens found in the prefix cache."}};
inline constexpr CounterName kDecodePrefixCacheEvictedTokens{
    {"tessera_decode_prefix_cache_evicted_tokens_total", "Tokens evicted from the prefix cache."}};
inline constexpr CounterName kDecodeAheadTokens{
    {"tessera_decode_ahead_tokens_total",
     "Tokens computed ahead of questions. outcome: used, wasted.",
     {"outcome"}}};
inline constexpr CounterName kDecodeNonfiniteLogits{
    {"tessera_decode_nonfinite_logits_total", "Sequences ended for NaN or infinite logits."}};
inline constexpr CounterName kDecodePromptTokens{
    {"tessera_decode_prompt_tokens_total", "Prompt tokens. source: computed, cached.", {"source"}}};
inline constexpr CounterName kDecodeGenerationTokens{
    {"tessera_decode_generation_tokens_total", "Tokens generated."}};
inline constexpr CounterName kDecodeRequestsFinished{
    {"tessera_decode_requests_finished_total",
     "Sequences ended. finished_reason: stop, length, abort, error.",
     {"finished_reason"}}};
inline constexpr CounterName kDecodePreemptions{
    {"tessera_decode_preemptions_total", "Sequences put back for want of blocks."}};
inline constexpr HistogramName kDecodeRequestQueue{
    {"tessera_decode_request_queue_seconds", "Time a sequence waits for the batch."},
    kRequestBuckets};
inline constexpr HistogramName kDecodeRequestPrefill{
    {"tessera_decode_request_prefill_seconds", "Time of a sequence's prefill."}, kRequestBuckets};
inline constexpr HistogramName kDecodeRequestDecode{
    {"tessera_decode_request_decode_seconds", "First to last token of a sequence."},
    kRequestBuckets};
inline constexpr HistogramName kDecodeStepTokens{
    {"tessera_decode_step_tokens", "Tokens of one step. phase: prefill, decode, mixed.", {"phase"}},
    kTokenCountBuckets};
inline constexpr HistogramName kDecodeStepDuration{
    {"tessera_decode_step_duration_seconds", "Time of one step.", {"phase"}}, kPerTokenBuckets};

// --- every process
inline constexpr GaugeName kDeviceMemory{
    {"tessera_device_memory_bytes",
     "Device memory held. kind: weights, kv_cache, workspace, other.",
     {"device", "kind"}}};
inline constexpr GaugeName kModelInfo{{"tessera_model_info",
                                       "Always 1; the model that is served.",
                                       {"quantization", "revision", "digest"}}};
inline constexpr GaugeName kModelLoadDuration{
    {"tessera_model_load_duration_seconds", "Time from start to a loaded model."}};
inline constexpr GaugeName kCanaryPresent{
    {"tessera_canary_present", "1 where the model has a canary file."}};
inline constexpr CounterName kLogLinesDropped{
    {"tessera_log_lines_dropped_total", "Lines of the log that nobody has read."}};
inline constexpr CounterName kTraceSpansDropped{
    {"tessera_trace_spans_dropped_total", "Spans that no collector has taken."}};
inline constexpr GaugeName kDraining{{"tessera_draining", "1 while the process drains."}};
inline constexpr GaugeName kStartTimestamp{
    {"tessera_start_timestamp_seconds", "Start of the process, Unix time."}};
inline constexpr GaugeName kBuildInfo{
    {"tessera_build_info", "Always 1; the build that runs.", {"version"}}};
// Prometheus' standard names.
inline constexpr CounterName kProcessCpuSeconds{
    {"process_cpu_seconds_total", "User and system CPU time spent."}};
inline constexpr GaugeName kProcessResidentMemory{
    {"process_resident_memory_bytes", "Resident memory size."}};
inline constexpr GaugeName kProcessVirtualMemory{
    {"process_virtual_memory_bytes", "Virtual memory size."}};
inline constexpr GaugeName kProcessOpenFds{{"process_open_fds", "Open file descriptors."}};
inline constexpr GaugeName kProcessMaxFds{
    {"process_max_fds", "Most file descriptors that may be open."}};
inline constexpr GaugeName kProcessStartTime{
    {"process_start_time_seconds", "Start of the process, Unix time."}};
inline constexpr CounterName kGrpcServerCallsStarted{
    {"grpc_server_call_started_total", "gRPC calls begun.", {"grpc_method"}}};
inline constexpr HistogramName kGrpcServerCallDuration{
    {"grpc_server_call_duration_seconds", "Time of a gRPC call.", {"grpc_method", "grpc_status"}},
    kRequestBuckets};

}  // namespace tessera::metrics
