// Sixteen numbers at once as four times four, NEON with dot products; see lanes_plain.h for what each function does.

#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr int kTokensAtOnce = 4;  // 32 registers hold no more
constexpr int kMany = 0;
constexpr int kSumsAtOnce = 6;
constexpr bool kQuarters = false;

struct Floats {
    float32x4_t of[4];
};
struct Ints {
    int32x4_t of[4];
};
struct Bytes {
    uint8x16_t of[4];  // four of each of 4 rows
};

inline Floats load(const float *from) {
    return {{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
}
inline void store(float *to, Floats v) {
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, v.of[i]);
}
inline Floats splat(float x) {
    const float32x4_t four = vdupq_n_f32(x);
    return {{four, four, four, four}};
}
inline Floats add(Floats a, Floats b) {
    for (int i = 0; i < 4; ++i) a.of[i] = vaddq_f32(a.of[i], b.of[i]);
    return a;
}
inline Floats sub(Floats a, Floats b) {
    for (int i = 0; i < 4; ++i) a.of[i] = vsubq_f32(a.of[i], b.of[i]);
    return a;
}
inline Floats mul(Floats a, Floats b) {
    for (int i = 0; i < 4; ++i) a.of[i] = vmulq_f32(a.of[i], b.of[i]);
    return a;
}
inline Floats div(Floats a, Floats b) {
    for (int i = 0; i < 4; ++i) a.of[i] = vdivq_f32(a.of[i], b.of[i]);
    return a;
}
inline Floats fma(Floats a, Floats b, Floats c) {
    for (int i = 0; i < 4; ++i) c.of[i] = vfmaq_f32(c.of[i], a.of[i], b.of[i]);
    return c;
}
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }  // one instruction on every AArch64

// Compared and chosen: NEON's own max of a number and none is none, and of 0 and -0 it is 0.
inline float32x4_t max(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Floats max(Floats a, Floats b) {
    for (int i = 0; i < 4; ++i) a.of[i] = max(a.of[i], b.of[i]);
    return a;
}
inline Floats min(Floats a, Floats b) {
    for (int i = 0; i < 4; ++i) a.of[i] = vbslq_f32(vcltq_f32(a.of[i], b.of[i]), a.of[i], b.of[i]);
    return a;
}
inline Floats abs(Floats a) {
    for (float32x4_t &four : a.of) four = vabsq_f32(four);
    return a;
}
inline Floats round(Floats a) {
    for (float32x4_t &four : a.of) four = vrndnq_f32(four);
    return a;
}
inline Floats from(Floats x, float limit, Floats a) {
    const float32x4_t least = vdupq_n_f32(limit), zero = vdupq_n_f32(0.0f);
    for (int i = 0; i < 4; ++i) a.of[i] = vbslq_f32(vcltq_f32(x.of[i], least), zero, a.of[i]);
    return a;
}
inline Floats power_of_two(Floats n) {
    for (float32x4_t &four : n.of) {
        const int32x4_t bits = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(four), vdupq_n_s32(127)), 23);
        four = vbslq_f32(vceqq_f32(four, four), vreinterpretq_f32_s32(bits), four);
    }
    return n;
}

// Numbers 8 apart, then 4 apart.
inline float32x4_t four_sums(Floats a) { return vaddq_f32(vaddq_f32(a.of[0], a.of[2]), vaddq_f32(a.of[1], a.of[3])); }

inline float sum(Floats a) {
    const float32x4_t four = four_sums(a);
    return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}

// Sums of numbers 2 apart in twice four.
inline float32x4_t two_sums(float32x4_t a, float32x4_t b) {
    return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)), vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
}

inline Floats sums(const Floats *all) {
    Floats each;
    for (int i = 0; i < 4; ++i, all += 4)
        each.of[i] = vpaddq_f32(two_sums(four_sums(all[0]), four_sums(all[1])),
                                two_sums(four_sums(all[2]), four_sums(all[3])));
    return each;
}


inline float highest(Floats a) { return vmaxvq_f32(max(max(a.of[0], a.of[2]), max(a.of[1], a.of[3]))); }

inline float32x4_t load_four_halves(const uint8_t *from) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from))); }
inline Floats load_halves(const uint8_t *from) {
    return {{load_four_halves(from), load_four_halves(from + 8), load_four_halves(from + 16),
             load_four_halves(from + 24)}};
}

inline float from_half(uint16_t half) {
    __fp16 x;
    std::memcpy(&x, &half, sizeof x);
    return static_cast<float>(x);
}
inline uint16_t to_half(float x) {
    const __fp16 half = static_cast<__fp16>(x);
    uint16_t bits;
    std::memcpy(&bits, &half, sizeof bits);
    return bits;
}

inline Floats splat_half(const uint8_t *from) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return splat(from_half(half));
}

inline Ints splat(int32_t x) {
    const int32x4_t four = vdupq_n_s32(x);
    return {{four, four, four, four}};
}
inline Ints add(Ints a, Ints b) {
    for (int i = 0; i < 4; ++i) a.of[i] = vaddq_s32(a.of[i], b.of[i]);
    return a;
}
inline Ints times_256(Ints a) {
    for (int32x4_t &four : a.of) four = vshlq_n_s32(four, 8);
    return a;
}
inline Floats to_floats(Ints a) {
    Floats v;
    for (int i = 0; i < 4; ++i) v.of[i] = vcvtq_f32_s32(a.of[i]);
    return v;
}

inline void store_bytes(int8_t *to, Floats a) {
    int16x4_t whole[4];
    for (int i = 0; i < 4; ++i) whole[i] = vmovn_s32(vcvtq_s32_f32(a.of[i]));
    const int16x8_t low = vcombine_s16(whole[0], whole[1]), high = vcombine_s16(whole[2], whole[3]);
    vst1q_s8(to, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

inline Floats load_levels(const uint8_t *from, int bits) {
    uint8x16_t bytes;
    if (bits == 8) {
        bytes = vld1q_u8(from);
    } else {
        const uint8x8_t both = vld1_u8(from);
        const uint8x8x2_t levels = vzip_u8(vand_u8(both, vdup_n_u8(15)), vshr_n_u8(both, 4));
        bytes = vcombine_u8(levels.val[0], levels.val[1]);
    }
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
}

inline Bytes load_bytes(const uint8_t *from) {
    return {{vld1q_u8(from), vld1q_u8(from + 16), vld1q_u8(from + 32), vld1q_u8(from + 48)}};
}
template <int left>
inline Bytes shifted(Bytes a, uint8_t mask) {
    for (uint8x16_t &rows : a.of) {
        if constexpr (left > 0) rows = vshlq_n_u8(rows, left);
        if constexpr (left < 0) rows = vshrq_n_u8(rows, -left);
        rows = vandq_u8(rows, vdupq_n_u8(mask));
    }
    return a;
}
inline Bytes either(Bytes a, Bytes b) {
    for (int i = 0; i < 4; ++i) a.of[i] = vorrq_u8(a.of[i], b.of[i]);
    return a;
}

inline int32_t begin8(int32_t) { return 0; }  // dot8 takes the 128 off the weights

inline int8x16_t four_activations(const int8_t *activations) {
    int32_t four;
    std::memcpy(&four, activations, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// Signed times signed.
inline Ints dot4(Ints a, Bytes weights, const int8_t *activations) {
    const int8x16_t four = four_activations(activations);
    for (int i = 0; i < 4; ++i) a.of[i] = vdotq_s32(a.of[i], vreinterpretq_s8_u8(weights.of[i]), four);
    return a;
}
inline Ints dot8(Ints a, Bytes weights, const int8_t *activations) {
    for (uint8x16_t &rows : weights.of) rows = veorq_u8(rows, vdupq_n_u8(128));
    return dot4(a, weights, activations);
}
inline Ints dot_twice(Ints a, Bytes first, Bytes second, const int8_t *activations) {
    return dot4(dot4(a, first, activations), second, activations + 4);
}

inline void prefetch(const void *where) { __builtin_prefetch(where); }

}  // namespace

#include "two_bytes.h"
