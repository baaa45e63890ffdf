#pragma once

#include "kernels/backend.h"

namespace tessera::kernels::reference {

double Activate(Activation activation, double x);

}  // namespace tessera::kernels::reference
