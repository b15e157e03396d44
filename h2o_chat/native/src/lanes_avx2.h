// Sixteen numbers at once as two times eight, AVX2 with FMA and F16C; see lanes_plain.h for what each function does.

#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr int kTokensAtOnce = 2;  // sixteen registers hold no more
constexpr int kMany = 4;
constexpr int kSumsAtOnce = 6;
constexpr bool kQuarters = false;

struct Floats {
    __m256 low, high;
};
struct Ints {
    __m256i low, high;
};
struct Bytes {
    __m256i low, high;
};

inline Floats load(const float *from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float *to, Floats v) {
    _mm256_storeu_ps(to, v.low);
    _mm256_storeu_ps(to + 8, v.high);
}
inline Floats splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats sub(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats mul(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats div(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Floats fma(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Floats abs(Floats a) {
    const __m256 digits = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return {_mm256_and_ps(a.low, digits), _mm256_and_ps(a.high, digits)};
}
inline Floats round(Floats a) {
    constexpr int how = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.low, how), _mm256_round_ps(a.high, how)};
}
inline Floats from(Floats x, float limit, Floats a) {
    const __m256 least = _mm256_set1_ps(limit);
    return {_mm256_and_ps(_mm256_cmp_ps(x.low, least, _CMP_NLT_UQ), a.low),
            _mm256_and_ps(_mm256_cmp_ps(x.high, least, _CMP_NLT_UQ), a.high)};
}
inline __m256 power_of_two(__m256 n) {
    const __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_blendv_ps(_mm256_castsi256_ps(bits), n, _mm256_cmp_ps(n, n, _CMP_UNORD_Q));
}
inline Floats power_of_two(Floats n) { return {power_of_two(n.low), power_of_two(n.high)}; }

inline float sum(Floats a) {
    const __m256 eight = _mm256_add_ps(a.low, a.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Eight at once: the tree of `sum`, one step of it for all, beside each other.
inline __m256 eight_sums(const Floats *all) {
    __m256 four[4], two[2];  // of two each: their four numbers beside each other; of four each: their two
    for (int i = 0; i < 4; ++i) {
        const __m256 a = _mm256_add_ps(all[i].low, all[i].high), b = _mm256_add_ps(all[i + 4].low, all[i + 4].high);
        four[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    for (int i = 0; i < 2; ++i)
        two[i] = _mm256_add_ps(_mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                               _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xdd));
}

inline Floats sums(const Floats *all) { return {eight_sums(all), eight_sums(all + 8)}; }


inline float highest(Floats a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline Floats load_halves(const uint8_t *from) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from + 16)))};
}

inline float from_half(uint16_t half) { return _cvtsh_ss(half); }
inline uint16_t to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

inline Floats splat_half(const uint8_t *from) {
    int16_t half;
    std::memcpy(&half, from, sizeof half);
    const __m256 all = _mm256_cvtph_ps(_mm_set1_epi16(half));
    return {all, all};
}

inline Ints splat(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Floats to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }

inline void store_bytes(int8_t *to, Floats a) {
    const __m256i low = _mm256_cvtps_epi32(a.low), high = _mm256_cvtps_epi32(a.high);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    const __m128i first = _mm256_castsi256_si128(words), last = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm_packs_epi16(first, last));
}

inline void store_two_bytes(int8_t *group, int at, Floats high, Floats low) {
    const __m256i first = _mm256_cvtps_epi32(add(mul(high, splat(256.0f)), low).low);
    const __m256i last = _mm256_cvtps_epi32(add(mul(high, splat(256.0f)), low).high);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, last), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(group + 2 * at), words);
}

inline Floats load_levels(const uint8_t *from, int bits) {
    __m128i bytes;
    if (bits == 8) {
        bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    } else {
        const __m128i both = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from)), mask = _mm_set1_epi8(15);
        bytes = _mm_unpacklo_epi8(_mm_and_si128(both, mask), _mm_and_si128(_mm_srli_epi16(both, 4), mask));
    }
    return to_floats(Ints{_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))});
}

inline Bytes load_bytes(const uint8_t *from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + 32))};
}
template <int left>
inline Bytes shifted(Bytes a, uint8_t mask) {  // of 16 bits together: what comes from the other byte is masked
    const __m256i kept = _mm256_set1_epi8(static_cast<char>(mask));
    if constexpr (left > 0) a = {_mm256_slli_epi16(a.low, left), _mm256_slli_epi16(a.high, left)};
    if constexpr (left < 0) a = {_mm256_srli_epi16(a.low, -left), _mm256_srli_epi16(a.high, -left)};
    return {_mm256_and_si256(a.low, kept), _mm256_and_si256(a.high, kept)};
}
inline Bytes either(Bytes a, Bytes b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }

inline __m256i four_activations(const int8_t *activations) {
    int32_t four;
    std::memcpy(&four, activations, sizeof four);
    return _mm256_set1_epi32(four);
}

inline int32_t begin8(int32_t all) { return -128 * all; }

// Sums of four products in 16 bits: at most 4 * 63 * 127.
inline Ints dot_twice(Ints a, Bytes first, Bytes second, const int8_t *activations) {
    const __m256i one = four_activations(activations), other = four_activations(activations + 4);
    const __m256i low = _mm256_add_epi16(_mm256_maddubs_epi16(first.low, one), _mm256_maddubs_epi16(second.low, other));
    const __m256i high = _mm256_add_epi16(_mm256_maddubs_epi16(first.high, one), _mm256_maddubs_epi16(second.high, other));
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(a.low, _mm256_madd_epi16(low, ones)), _mm256_add_epi32(a.high, _mm256_madd_epi16(high, ones))};
}

// Returns `a`, and makes the compiler compute it here: GCC 12 would compute all products of a group first, for which
// there are not enough registers, and add them afterwards.
template <class T>
inline T kept(T a) {
    __asm__("" : "+x"(a.low), "+x"(a.high));
    return a;
}

// Words of 16 bits: a product of pairs needs no sign of its own, and no second rounding to 16 bits.
template <int B>
inline void times_two_bytes(const uint8_t *weights, const int8_t *groups, Ints *products) {
    __m256i sums[B][4];  // two for each row, of 4 rows each
    for (auto &token : sums)
        for (__m256i &rows : token) rows = _mm256_setzero_si256();
    for (int j = 0; j < 8; ++j) {
        __m256i numbers[B];
        for (int b = 0; b < B; ++b) {
            int64_t four;
            std::memcpy(&four, groups + 64 * b + 8 * j, sizeof four);
            numbers[b] = _mm256_set1_epi64x(four);
        }
        for (int rows = 0; rows < 4; ++rows, weights += 16) {
            const __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(weights)));
            for (int b = 0; b < B; ++b)
                sums[b][rows] = _mm256_add_epi32(sums[b][rows], _mm256_madd_epi16(words, numbers[b]));
        }
    }
    for (int b = 0; b < B; ++b) {
        const __m256i low = _mm256_hadd_epi32(sums[b][0], sums[b][1]), high = _mm256_hadd_epi32(sums[b][2], sums[b][3]);
        products[b].low = _mm256_add_epi32(products[b].low, _mm256_permute4x64_epi64(low, 0xd8));
        products[b].high = _mm256_add_epi32(products[b].high, _mm256_permute4x64_epi64(high, 0xd8));
    }
}

// A group's weights of 8 bits as words, for many tokens: 8 rows times 2 columns in each, so that a product of pairs is a
// sum of each row.
struct Words {
    Bytes pairs[16];
};

inline Words to_words(const uint8_t *weights) {
    const auto four_rows = [&](int at) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(weights + at));
        return _mm256_castsi256_ps(_mm256_cvtepu8_epi16(bytes));
    };
    const auto pairs = [](__m256 mixed) { return _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xd8); };
    Words all;
    for (int j = 0; j < 8; ++j) {
        const __m256 a = four_rows(64 * j), b = four_rows(64 * j + 16);
        const __m256 c = four_rows(64 * j + 32), d = four_rows(64 * j + 48);
        all.pairs[2 * j] = {pairs(_mm256_shuffle_ps(a, b, 0x88)), pairs(_mm256_shuffle_ps(c, d, 0x88))};
        all.pairs[2 * j + 1] = {pairs(_mm256_shuffle_ps(a, b, 0xdd)), pairs(_mm256_shuffle_ps(c, d, 0xdd))};
    }
    return all;
}

template <int B>
inline void times_words(const Words &weights, const int8_t *groups, Ints *products) {
    for (int j = 0; j < 16; ++j) {
        const Bytes words = kept(weights.pairs[j]);
        for (int b = 0; b < B; ++b) {
            const __m256i two = four_activations(groups + 64 * b + 4 * j);
            products[b] = kept(Ints{_mm256_add_epi32(products[b].low, _mm256_madd_epi16(words.low, two)),
                                    _mm256_add_epi32(products[b].high, _mm256_madd_epi16(words.high, two))});
        }
    }
}

inline void prefetch(const void *where) { _mm_prefetch(static_cast<const char *>(where), _MM_HINT_T0); }

}  // namespace
