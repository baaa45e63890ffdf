#pragma once

#include <cstdint>

#include "common/store/rows.h"
#include "services/decode/engine/record_reader.h"

namespace tessera::decode {

// A picture of a sequence whose rows are read: what is asked for, and then what was found.
struct WantedRows {
  int32_t picture = 0;  // its place among the sequence's pictures
  WantedRecord record;
  // Set by who reads.
  ReadRecord found = {};       // without a record: nobody has it
  store::FloatRows rows = {};  // of the record found, as a device takes them
};

}  // namespace tessera::decode
