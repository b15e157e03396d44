// Sixteen numbers at once, AVX-512 with VNNI; see lanes_plain.h for what each function does.

#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr int kSumsAtOnce = 16;
constexpr int kTokensAtOnce = 8;
constexpr int kMany = 9;  // fewer take less as 8, 4, 2 and 1 of them, though the weights are read anew for each
constexpr bool kQuarters = true;

using Floats = __m512;
using Ints = __m512i;
struct Bytes {
    __m512i all;
};

inline Floats load(const float *from) { return _mm512_loadu_ps(from); }
inline void store(float *to, Floats v) { _mm512_storeu_ps(to, v); }
inline Floats splat(float x) { return _mm512_set1_ps(x); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats abs(Floats a) { return _mm512_abs_ps(a); }
inline Floats round(Floats a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Floats from(Floats x, float limit, Floats a) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ), a);
}
inline Floats power_of_two(Floats n) { return _mm512_scalef_ps(_mm512_set1_ps(1.0f), n); }

inline float sum(Floats a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline Floats quarters(Floats a, Floats b, Floats c, Floats d) {
    // Halves of two beside each other, then quarters: what is not where it belongs changes places.
    const auto halves = [](__m512 x, __m512 y) {
        return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x, y), _mm512_shuffle_f32x4(x, y, 0x4e));
    };
    const __m512 ab = halves(a, b), cd = halves(c, d);  // first 4, then last 4 of a; last 4, then first 4 of b
    const __m512i others = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, ab, cd), _mm512_permutex2var_ps(ab, others, cd));  // a c b d
}

inline Floats sums_of_quarters(Floats a, Floats b, Floats c, Floats d) {
    const auto pairs = [](__m512 x, __m512 y) {  // of each quarter, of two beside each other
        return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
    };
    const __m512 ab = pairs(a, b), cd = pairs(c, d);
    const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xdd));
    const __m512i order = _mm512_setr_epi32(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15);
    return _mm512_permutexvar_ps(order, all);
}

inline Floats sums(const Floats *all) {
    __m512 some[4];
    for (int i = 0; i < 4; ++i) some[i] = quarters(all[4 * i], all[4 * i + 1], all[4 * i + 2], all[4 * i + 3]);
    return sums_of_quarters(some[0], some[1], some[2], some[3]);
}


inline float highest(Floats a) { return _mm512_reduce_max_ps(a); }

inline Floats load_halves(const uint8_t *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}

inline float from_half(uint16_t half) { return _cvtsh_ss(half); }
inline uint16_t to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

inline Floats splat_half(const uint8_t *from) {
    int16_t half;
    std::memcpy(&half, from, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
}

inline Ints splat(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints times_256(Ints a) { return _mm512_slli_epi32(a, 8); }
inline Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }

inline void store_bytes(int8_t *to, Floats a) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}

inline Floats load_levels(const uint8_t *from, int bits) {
    __m128i bytes;
    if (bits == 8) {
        bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    } else {
        const __m128i both = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from)), mask = _mm_set1_epi8(15);
        bytes = _mm_unpacklo_epi8(_mm_and_si128(both, mask), _mm_and_si128(_mm_srli_epi16(both, 4), mask));
    }
    return to_floats(_mm512_cvtepu8_epi32(bytes));
}

inline Bytes load_bytes(const uint8_t *from) { return {_mm512_loadu_si512(from)}; }
template <int left>
inline Bytes shifted(Bytes a, uint8_t mask) {  // of 16 bits together: what comes from the other byte is masked
    if constexpr (left > 0) a.all = _mm512_slli_epi16(a.all, left);
    if constexpr (left < 0) a.all = _mm512_srli_epi16(a.all, -left);
    return {_mm512_and_si512(a.all, _mm512_set1_epi8(static_cast<char>(mask)))};
}
inline Bytes either(Bytes a, Bytes b) { return {_mm512_or_si512(a.all, b.all)}; }

inline int32_t begin8(int32_t all) { return -128 * all; }

inline Ints dot8(Ints a, Bytes weights, const int8_t *activations) {
    int32_t four;
    std::memcpy(&four, activations, sizeof four);
    return _mm512_dpbusd_epi32(a, weights.all, _mm512_set1_epi32(four));
}
inline Ints dot_twice(Ints a, Bytes first, Bytes second, const int8_t *activations) {
    return dot8(dot8(a, first, activations), second, activations + 4);
}
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }

inline void prefetch(const void *where) { _mm_prefetch(static_cast<const char *>(where), _MM_HINT_T0); }

}  // namespace

#include "two_bytes.h"
