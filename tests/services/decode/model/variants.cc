#include "tests/services/decode/model/variants.h"

namespace tessera::testing {

std::vector<Variant> Variants() {
  const base::Json linear = {{"type", "linear"}, {"factor", 4.0}};
  const base::Json dynamic = {{"type", "dynamic"}, {"factor", 2.0}};
  const base::Json new_dynamic = {
      {"rope_type", "dynamic"}, {"factor", 3.0}, {"rope_theta", 5000.0}};
  const base::Json llama3 = {{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 16}};
  return {
      {"multi_head",
       {.heads = 4, .kv_heads = 4},
       {0.2042197f, -0.3378247f, 3.350595f, 0.0955015f},
       {-0.193376f, 2.467933f, 0.5390011f, 2.845604f}},
      {"biases_everywhere",
       {.dtype = DType::kBF16,
        .shards = 3,
        .new_names = true,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 24,
        .attention_bias = true,
        .mlp_bias = true,
        .hidden_act = "gelu_new"},
       {-0.881369f, 1.148255f, -1.228399f, -0.9494441f},
       {0.2308086f, -0.6952947f, -0.6612883f, -2.182488f}},
      {"linear_f16",
       {.dtype = DType::kF16, .rope_scaling = linear},
       {-2.96863f, -0.5099626f, 0.3635077f, 1.518201f},
       {-3.381776f, -1.368617f, 0.5673792f, -2.357989f}},
      {"dynamic",
       {.max_position_embeddings = 16, .rope_scaling = dynamic},
       {-2.336805f, -0.4244346f, -0.2646741f, 0.8553366f},
       {-4.235816f, -0.3521056f, 1.0688f, -1.820524f}},
      {"dynamic_grows_while_decoding",
       {.new_names = true, .max_position_embeddings = 41, .rope_parameters = new_dynamic},
       {-3.68554f, 0.2263814f, -0.3219676f, 1.305379f},
       {-3.950786f, -1.164129f, 0.7717287f, -3.179809f}},
      {"llama3_tied",
       {.new_names = true, .tied = true, .rope_scaling = llama3},
       {1.507872f, -0.8300381f, 1.365697f, 1.84283f},
       {1.08747f, -3.800159f, 0.4245926f, 0.850199f}},
      {"one_key_head_exact_gelu",
       {.heads = 8, .kv_heads = 1, .hidden_act = "gelu"},
       {0.9423686f, -1.898139f, 1.354491f, 1.118336f},
       {1.24054f, -0.04342183f, -1.017531f, 0.5219711f}},
      {"quick_gelu",
       {.shards = 2, .hidden_act = "quick_gelu"},
       {-2.698308f, -0.5799661f, -0.950111f, 0.2842629f},
       {-4.552356f, -0.8442032f, 0.8591056f, -3.320802f}},
      {"relu",
       {.layers = 1, .hidden_act = "relu"},
       {-0.2694561f, 0.6666856f, -0.8248076f, 0.7949066f},
       {0.4941334f, 0.215726f, -0.07429428f, 2.214091f}},
  };
}

}  // namespace tessera::testing
