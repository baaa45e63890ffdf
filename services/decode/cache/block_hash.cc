#include "services/decode/cache/block_hash.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera::decode {
namespace {

// Raised when the meaning of what is hashed changes.
constexpr absl::string_view kFormat = "tessera kv block 1";

template <typename T>
absl::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

BlockHash BlockHasher::Root(const ChainRoot& root) {
  sha_.Reset();
  sha_.UpdateField(kFormat);
  sha_.UpdateField(root.tenant);
  sha_.UpdateField(BytesOf(root.adapter));
  sha_.UpdateField(root.pruning);
  sha_.UpdateField(BytesOf(root.rotary_length));
  return sha_.Finish();
}

BlockHash BlockHasher::Next(const BlockHash& parent, int32_t block, absl::Span<const int32_t> ids,
                            absl::Span<const PromptPicture> pictures) {
  CHECK_LE(ids.size(), static_cast<size_t>(block_size_));
  sha_.Reset();
  sha_.Update(BytesOf(parent));
  sha_.UpdateField({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
  const int32_t first = block * block_size_;
  const int32_t last = first + static_cast<int32_t>(ids.size());
  for (const PromptPicture& picture : pictures) {
    const int32_t begin = std::max(first, picture.first_token);
    const int32_t end = std::min(last, picture.end_token());
    if (begin >= end) continue;
    // Rows stand one behind the other, so a run of them says as much as each row would. The third
    // number is the transform: identity.
    const int32_t run[4] = {begin - first, end - begin, 0, begin - picture.first_token};
    sha_.Update(BytesOf(run));
    sha_.Update(picture.key.bytes());
  }
  return sha_.Finish();
}

std::vector<BlockHash> BlockHasher::Chain(const BlockHash& root, absl::Span<const int32_t> ids,
                                          absl::Span<const PromptPicture> pictures) {
  std::vector<BlockHash> chain;
  const size_t blocks = ids.size() / block_size_;
  chain.reserve(blocks);
  BlockHash parent = root;
  for (size_t block = 0; block < blocks; ++block) {
    parent = Next(parent, static_cast<int32_t>(block),
                  ids.subspan(block * block_size_, block_size_), pictures);
    chain.push_back(parent);
  }
  return chain;
}

}  // namespace tessera::decode
