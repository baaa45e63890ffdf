#pragma once

// Which instruction sets the SIMD files are compiled for; include it before any header of Highway.
// SCALAR is the baseline that every machine has, AVX2 and AVX3 (AVX-512) are chosen at run time.
// The SSE sets have no FMA and only cost compile time; AVX3_DL (Ice Lake, Zen 4) adds nothing to
// arithmetic in f32: define HWY_WANT_AVX3_DL here when integer dot products need it.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
