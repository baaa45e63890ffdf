#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/gateway/answer/validate.h"
#include "services/gateway/pictures/image_resolver.h"
#include "tessera/v1/decode.pb.h"

namespace tessera::gateway {

// The pictures of one request: what is known of each, which of them decode is asked about, and
// under which numbers. Calls nobody; not thread-safe: its answer guards it.
class AnswerPictures {
 public:
  // Once, before anything else. `parsed` outlives this.
  void Begin(const ParsedRequest& parsed);

  // What became of picture `index`. Not OK: the request fails with this, which names the picture.
  absl::Status Resolve(size_t index, absl::StatusOr<ResolvedImage> image);
  // All have been resolved.
  bool complete() const { return unresolved_ == 0; }

  // What decode is asked now: with the pictures that are not left out, under new numbers, and
  // `quality_warning` behind bad ones.
  v1::DecodeStart MakeStart(const std::string& quality_warning);
  // The pictures that decode means by `need`.
  std::vector<uint32_t> Needed(const v1::NeedRows& need) const;
  // What decode calls picture `index` now; nullopt where it was not asked about it.
  std::optional<uint32_t> NumberOf(uint32_t index) const;

  // What became of the rows of picture `index` that decode missed. `late`: the answer had begun, so
  // the picture's bytes are gone. OK: there again. Not OK, and `asked_anew`: it is left out, decode
  // is to be asked anew. Not OK else: as Resolve.
  absl::Status ResolveAgain(uint32_t index, bool late, absl::StatusOr<ResolvedImage> image,
                            bool& asked_anew);

  // Rows that decode cannot have seen yet: those that were made for this request.
  int64_t rows_made() const;
  // A picture was encoded for this request.
  bool computed() const;
  // `end` with its pictures as the request has them.
  v1::DecodeEnd InOrder(const v1::DecodeEnd& end) const;
  const std::vector<ResolvedImage>& images() const { return images_; }
  // What was left out, and why; usually empty.
  const std::vector<std::string>& losses() const { return losses_; }
  // Nobody needs the rows any more: what kept them, to be let go without a lock. Allocates nothing
  // when none are kept.
  std::vector<std::shared_ptr<const void>> TakeRows();

 private:
  // The client would rather be answered without a picture that nobody can encode now. False: it is
  // no such loss, or no such client.
  bool LeaveOut(size_t index, const absl::Status& status);
  void WarnOfQuality(const std::string& warning, v1::DecodeStart& start) const;

  const ParsedRequest* parsed_ = nullptr;
  std::vector<ResolvedImage> images_;
  std::vector<bool> left_out_;
  std::vector<uint32_t> asked_;  // by decode's numbers
  std::vector<std::string> losses_;
  size_t unresolved_ = 0;
};

}  // namespace tessera::gateway
