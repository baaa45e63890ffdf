#pragma once

#include "kernels/backend.h"

namespace tessera::kernels::reference {

void RotaryAngles(const RotaryAnglesParams& params);
void RotaryKvWrite(const RotaryKvParams& params);

}  // namespace tessera::kernels::reference
