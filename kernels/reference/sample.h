#pragma once

#include <vector>

#include "kernels/backend.h"
#include "kernels/sampling.h"

namespace tessera::kernels::reference {

void Sample(const SampleParams& params, std::vector<Candidate>& scratch);

}  // namespace tessera::kernels::reference
