// AVX-512, and sixteen tokens at once in the tiles of AMX, where each group's products are whole numbers as everywhere.

#pragma once

#include "lanes_avx512.h"
#include "model.h"

namespace {

constexpr bool kSixteen = true;

// Tiles: 0 to 3 hold products [16 tokens, 16 rows], 4 and 5 a group's activations [16 tokens, 32], 6 and 7 its weights
// [8, 16 rows x 4].
inline void begin_sixteen() {
    struct alignas(64) {
        uint8_t palette = 1, first = 0, unused[14] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 32, 32, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 8, 8};
    } sizes;
    // Not the intrinsic: GCC 12's names 8 of the 64 bytes, and the others are never written.
    __asm__ volatile("ldtilecfg %0" : : "m"(sizes));
}

inline void end_sixteen() { __asm__ volatile("tilerelease"); }

template <int tile>
inline void load_tile(const void *from, ptrdiff_t row_bytes) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(tile) : "memory");
}

template <int tile>
inline void store_tile(int32_t *to) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(ptrdiff_t{64}), "i"(tile) : "memory");
}

// Products of bytes: weights from -8 to 7 where `bits` is 4, else from 0 to 255.
template <int bits, int to, int numbers, int weights>
inline void multiply_tiles() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(to));
    if (bits == 4)
        __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(to), "i"(numbers), "i"(weights));
    else
        __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(to), "i"(numbers), "i"(weights));
}

// One tile of weights times a block of sixteen tokens.
template <int bits>
struct Sixteen {
    const uint8_t *weights;
    const uint16_t *scales;
    const Rounded in;
    const int groups = in.columns / 32;
    // Memory of a tile must be in the nearest cache when it is loaded or read: groups are unpacked two ahead, and
    // added two later.
    alignas(64) int8_t wide[4][512];
    alignas(64) int32_t products[4][2][256];  // where weights have 4 bits the second one is not used

    Sixteen(const uint8_t *weights, const uint16_t *scales, const Rounded &in)
        : weights(weights), scales(scales), in(in) {}

    void unpack(int group) {
        const __m512i mask = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
        const uint8_t *from = weights + 256 * static_cast<ptrdiff_t>(group);
        int8_t *to = wide[group & 3];
        for (int j = 0; j < 256; j += 64) {
            prefetch(from + 4096 + j);
            const __m512i both = _mm512_loadu_si512(from + j), high = _mm512_srli_epi16(both, 4);
            _mm512_store_si512(to + j, _mm512_sub_epi8(_mm512_and_si512(both, mask), eight));
            _mm512_store_si512(to + 256 + j, _mm512_sub_epi8(_mm512_and_si512(high, mask), eight));
        }
    }

    // `odd` groups have tiles of their own, so that one is multiplied while the other one's products are stored.
    template <int odd>
    void multiply(int group) {
        const int8_t *numbers = in.numbers + static_cast<ptrdiff_t>(group) * kWidth * in.bytes;
        if (bits == 4) {
            load_tile<6 + odd>(wide[group & 3], 64);
            load_tile<4 + odd>(numbers, 32);
            multiply_tiles<4, 2 * odd, 4 + odd, 6 + odd>();
            return;
        }
        const uint8_t *from = weights + 512 * static_cast<ptrdiff_t>(group);
        for (int j = 0; j < 512; j += 64) prefetch(from + 4096 + j);
        load_tile<6 + odd>(from, 64);
        load_tile<4>(numbers, 64);
        multiply_tiles<8, 2 * odd, 4, 6 + odd>();
        load_tile<5>(numbers + 32, 64);
        multiply_tiles<8, 2 * odd + 1, 5, 6 + odd>();
    }

    template <int odd>
    void store(int group) {
        store_tile<2 * odd>(products[group & 3][0]);
        if (bits == 8) store_tile<2 * odd + 1>(products[group & 3][1]);
    }

    void add_up(int group, Floats *sums) const {
        const Floats scale = load_halves(scales + 16 * group);
        const int first = kWidth * group;
        for (int b = 0; b < kWidth; ++b) {
            Ints all = _mm512_load_si512(products[group & 3][0] + 16 * b);
            if (bits == 8) {
                const Ints low = _mm512_load_si512(products[group & 3][1] + 16 * b);
                all = add(add(times_256(all), low), splat(in.begins[first + b]));
            }
            sums[b] = fma(to_floats(all), mul(scale, splat(in.scales[first + b])), sums[b]);
        }
    }

    template <int odd>
    void step(int group, Floats *sums) {
        if (group < groups) multiply<odd>(group);
        if (group >= 1 && group - 1 < groups) store<!odd>(group - 1);
        if (bits == 4 && group + 2 < groups) unpack(group + 2);
        if (group >= 2 && group - 2 < groups) add_up(group - 2, sums);
    }
};

template <int bits>
inline void sixteen_times(const uint8_t *weights, const uint16_t *scales, const Rounded &in, Floats *out) {
    Sixteen<bits> all(weights, scales, in);
    Floats sums[kWidth];
    for (Floats &one : sums) one = splat(0.0f);
    for (int group = 0; bits == 4 && group < 2 && group < all.groups; ++group) all.unpack(group);
    for (int group = 0; group < all.groups + 2; group += 2) {
        all.template step<0>(group, sums);
        all.template step<1>(group + 1, sums);
    }
    std::memcpy(out, sums, sizeof sums);
}

}  // namespace
