#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/gateway/answer/parse_request.h"
#include "services/gateway/pictures/image_resolver.h"
#include "tessera/v1/decode.pb.h"

namespace tessera::gateway {

// The pictures of one request: what is known of each, which of them decode is asked about, and
// under which numbers. Calls nobody; not thread-safe: its answer guards it.
class AnswerPictures {
 public:
  // Once, before anything else. `parsed` outlives this.
  void Begin(ParsedRequest& parsed);

  // OK: what vision said of picture `index`, `status`, lets the request go on. Else it fails with
  // this, which names the picture.
  absl::Status Verdict(size_t index, const absl::Status& status) const;
  // Why the rows of picture `index` that decode missed cannot be had, which fails the request; OK
  // where they can. `late`: the answer had begun, so the picture's bytes are gone.
  absl::Status RowsVerdict(size_t index, const absl::Status& status, bool late) const;
  // The client would rather be answered without a picture of which vision said `status`.
  bool IsSpare(const absl::Status& status) const;

  // Picture `index` will be so many rows.
  void Plan(size_t index, uint32_t rows) { images_[index].ref.set_rows(rows); }
  // Of the pictures that are planned or there.
  int64_t rows() const;

  // What became of picture `index`. REQUIRES: it is OK, or IsSpare.
  void Keep(size_t index, absl::StatusOr<ResolvedImage> image);
  // In the midst of an answer, where what the picture cost is known: its rows alone.
  void KeepRows(size_t index, std::shared_ptr<const void> rows);

  // What decode is asked now: with the pictures that are not left out, under new numbers, and
  // `quality_warning` behind bad ones. More than once only where a picture may be left out.
  std::shared_ptr<v1::DecodeStart> MakeStart(const std::string& quality_warning);
  // The pictures that decode means by `need`.
  std::vector<uint32_t> Needed(const v1::NeedRows& need) const;
  // What decode calls picture `index` now. REQUIRES: it was asked about it.
  uint32_t NumberOf(uint32_t index) const;

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
  void WarnOfQuality(const std::string& warning, v1::DecodeStart& start) const;

  ParsedRequest* parsed_ = nullptr;
  std::vector<ResolvedImage> images_;
  std::vector<bool> left_out_;
  std::vector<uint32_t> asked_;  // by decode's numbers
  std::vector<std::string> losses_;
};

}  // namespace tessera::gateway
