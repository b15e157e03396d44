// Sixteen numbers at once, in plain C++. Read this form first: the others compute the same, bit for bit.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int kTokensAtOnce = 8;
constexpr int kMany = 0;  // from so many tokens on their weights are unpacked once for all; 0: never
constexpr int kSumsAtOnce = 16;  // of sixteen numbers each
constexpr bool kQuarters = true;  // `quarters` is here

struct Floats {
    float at[16];
};

struct Ints {
    int32_t at[16];
};

struct Bytes {
    uint8_t at[64];  // four of each of 16 rows
};

inline Floats load(const float *from) {
    Floats v;
    std::memcpy(v.at, from, sizeof v.at);
    return v;
}

inline void store(float *to, Floats v) { std::memcpy(to, v.at, sizeof v.at); }

inline Floats splat(float x) {
    Floats v;
    for (float &one : v.at) one = x;
    return v;
}

inline Floats add(Floats a, Floats b) {
    for (int i = 0; i < 16; ++i) a.at[i] += b.at[i];
    return a;
}

inline Floats sub(Floats a, Floats b) {
    for (int i = 0; i < 16; ++i) a.at[i] -= b.at[i];
    return a;
}

inline Floats mul(Floats a, Floats b) {
    for (int i = 0; i < 16; ++i) a.at[i] *= b.at[i];
    return a;
}

inline Floats div(Floats a, Floats b) {
    for (int i = 0; i < 16; ++i) a.at[i] /= b.at[i];
    return a;
}

// a * b + c, rounded once.
inline Floats fma(Floats a, Floats b, Floats c) {
    for (int i = 0; i < 16; ++i) c.at[i] = std::fma(a.at[i], b.at[i], c.at[i]);
    return c;
}

inline float fma(float a, float b, float c) { return std::fma(a, b, c); }

// The second one if either is no number.
inline Floats max(Floats a, Floats b) {
    for (int i = 0; i < 16; ++i) a.at[i] = a.at[i] > b.at[i] ? a.at[i] : b.at[i];
    return a;
}

inline Floats min(Floats a, Floats b) {
    for (int i = 0; i < 16; ++i) a.at[i] = a.at[i] < b.at[i] ? a.at[i] : b.at[i];
    return a;
}

inline Floats abs(Floats a) {
    for (float &one : a.at) one = std::fabs(one);
    return a;
}

// To the nearest whole number, halves to the even one.
inline Floats round(Floats a) {
    for (float &one : a.at) one = std::nearbyint(one);
    return a;
}

// a where x >= limit or x is no number, else 0.
inline Floats from(Floats x, float limit, Floats a) {
    for (int i = 0; i < 16; ++i) a.at[i] = x.at[i] < limit ? 0.0f : a.at[i];
    return a;
}

// 2 to the power of whole numbers from -126 to 127; no number stays none.
inline Floats power_of_two(Floats n) {
    for (float &one : n.at) one = one == one ? std::ldexp(1.0f, static_cast<int>(one)) : one;
    return n;
}

// The fixed tree: 8 apart, 4 apart, 2 apart, neighbours.
inline float sum(Floats a) {
    for (int apart = 8; apart; apart /= 2)
        for (int i = 0; i < apart; ++i) a.at[i] += a.at[i + apart];
    return a.at[0];
}

// The sum of each of sixteen.
inline Floats sums(const Floats *all) {
    Floats each;
    for (int i = 0; i < 16; ++i) each.at[i] = sum(all[i]);
    return each;
}

// The first two steps of the tree, of four: four numbers of each, in an order that `sums_of_quarters` knows.
inline Floats quarters(Floats a, Floats b, Floats c, Floats d) {
    Floats each;
    for (int i = 0; i < 4; ++i) {
        each.at[i] = (a.at[i] + a.at[i + 8]) + (a.at[i + 4] + a.at[i + 12]);
        each.at[4 + i] = (b.at[i] + b.at[i + 8]) + (b.at[i + 4] + b.at[i + 12]);
        each.at[8 + i] = (c.at[i] + c.at[i + 8]) + (c.at[i + 4] + c.at[i + 12]);
        each.at[12 + i] = (d.at[i] + d.at[i + 8]) + (d.at[i + 4] + d.at[i + 12]);
    }
    return each;
}

// The rest of it, of four times four.
inline Floats sums_of_quarters(Floats a, Floats b, Floats c, Floats d) {
    Floats each;
    const Floats all[4] = {a, b, c, d};
    for (int i = 0; i < 16; ++i) {
        const float *four = all[i / 4].at + i % 4 * 4;
        each.at[i] = (four[0] + four[2]) + (four[1] + four[3]);
    }
    return each;
}

// Whether a number is above that of b in its place.

inline float highest(Floats a) {
    for (int i = 1; i < 16; ++i) a.at[0] = a.at[i] > a.at[0] ? a.at[i] : a.at[0];
    return a.at[0];
}

inline float from_half(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31, digits = half & 1023u;
    uint32_t bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | digits << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | digits << 13;
    } else {  // digits * 2^-24
        const float small = std::ldexp(static_cast<float>(digits), -24);
        return sign ? -small : small;
    }
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// To the nearest fp16, halves to the even one.
inline uint16_t to_half(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u, all = bits & 0x7fffffffu;
    if (all > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // no number
    if (all >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // infinite from 65,520 on
    if (all < 0x38800000u) {                                               // below 2^-14: whole multiples of 2^-24
        const float steps = std::nearbyint(std::ldexp(std::fabs(x), 24));
        return static_cast<uint16_t>(sign | static_cast<uint32_t>(steps));
    }
    const uint32_t rounded = all + 0xfffu + (all >> 13 & 1u);
    return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

// Sixteen fp16.
inline Floats load_halves(const uint8_t *from) {
    uint16_t halves[16];
    std::memcpy(halves, from, sizeof halves);
    Floats v;
    for (int i = 0; i < 16; ++i) v.at[i] = from_half(halves[i]);
    return v;
}

// One fp16, sixteen times; it may lie at any byte.
inline Floats splat_half(const uint8_t *from) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return splat(from_half(half));
}

inline Ints splat(int32_t x) {
    Ints v;
    for (int32_t &one : v.at) one = x;
    return v;
}

inline Floats to_floats(Ints a) {
    Floats v;
    for (int i = 0; i < 16; ++i) v.at[i] = static_cast<float>(a.at[i]);
    return v;
}

// Stores whole numbers from -127 to 127.
inline void store_bytes(int8_t *to, Floats a) {
    for (int i = 0; i < 16; ++i) to[i] = static_cast<int8_t>(a.at[i]);
}

// Stores numbers of two bytes, 256 * high + low: sixteen of a group's from number `at` on.
inline void store_two_bytes(int8_t *group, int at, Floats high, Floats low) {
    for (int i = 0; i < 16; ++i) {
        const auto number = static_cast<int16_t>(256 * static_cast<int>(high.at[i]) + static_cast<int>(low.at[i]));
        std::memcpy(group + 2 * (at + i), &number, 2);
    }
}

// Sixteen levels of 8 bits, or of 4, two in a byte.
inline Floats load_levels(const uint8_t *from, int bits) {
    Floats v;
    for (int i = 0; i < 16; ++i) v.at[i] = bits == 8 ? from[i] : i % 2 ? from[i / 2] >> 4 : from[i / 2] & 15;
    return v;
}

inline Bytes load_bytes(const uint8_t *from) {
    Bytes v;
    std::memcpy(v.at, from, sizeof v.at);
    return v;
}

// The bits of a mask after each byte was shifted to the left, or by less than 0 to the right.
template <int left>
inline Bytes shifted(Bytes a, uint8_t mask) {
    for (uint8_t &one : a.at) one = static_cast<uint8_t>(left < 0 ? one >> (left < 0 ? -left : 0) : one << (left < 0 ? 0 : left)) & mask;
    return a;
}

inline Bytes either(Bytes a, Bytes b) {
    for (int i = 0; i < 64; ++i) a.at[i] |= b.at[i];
    return a;
}

// What a group's products with weights of 8 bits begin with, where `all` is the sum of its activations: such weights are
// stored as q + 128.
inline int32_t begin8(int32_t all) { return -128 * all; }

// Adds to each row four weights times four activations, twice; weights have at most 6 bits, so that a form may add four
// products in 16 bits.
inline Ints dot_twice(Ints a, Bytes first, Bytes second, const int8_t *activations) {
    for (int row = 0; row < 16; ++row)
        for (int i = 0; i < 4; ++i) {
            a.at[row] += first.at[4 * row + i] * activations[i];
            a.at[row] += second.at[4 * row + i] * activations[4 + i];
        }
    return a;
}

// Adds to each row of a tile its 32 weights of 8 bits times the numbers of two bytes of B tokens.
template <int B>
inline void times_two_bytes(const uint8_t *weights, const int8_t *groups, Ints *products) {
    for (int b = 0; b < B; ++b) {
        int16_t numbers[32];
        std::memcpy(numbers, groups + 64 * b, sizeof numbers);
        for (int i = 0; i < 32; ++i)
            for (int row = 0; row < 16; ++row)
                products[b].at[row] += weights[64 * (i / 4) + 4 * row + i % 4] * numbers[i];
    }
}

// A group's weights of 8 bits, unpacked for many tokens: a form may have them as it likes.
using Words = const uint8_t *;
inline Words to_words(const uint8_t *weights) { return weights; }
template <int B>
inline void times_words(Words weights, const int8_t *groups, Ints *products) {
    times_two_bytes<B>(weights, groups, products);
}

// Returns `a`, and makes the compiler compute it here (see lanes_avx2.h).
template <class T>
inline T kept(T a) {
    return a;
}

inline void prefetch(const void *) {}

}  // namespace
