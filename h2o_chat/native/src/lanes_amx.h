// Sixteen tokens at once in the tiles of AMX, where each group's products are whole numbers as everywhere. Included by
// kernels.h, after lanes_avx512.h.

#pragma once

namespace {

constexpr bool kSixteen = true;

// Tiles: 0 to 3 hold products [16 tokens, 16 rows], 4 and 5 activations [16 tokens, 32] of a group or [16 tokens, 16] of a
// half, 6 and 7 its weights [8 or 4, 16 rows x 4].
inline void begin_sixteen(bool halves) {
    const uint8_t rows = halves ? 4 : 8;
    const auto columns = static_cast<uint16_t>(4 * rows);
    const struct alignas(64) {
        uint8_t palette = 1, first = 0, unused[14] = {};
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } sizes = {1, 0, {}, {64, 64, 64, 64, columns, columns, 64, 64}, {16, 16, 16, 16, 16, 16, rows, rows}};
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

template <int to, int numbers, int weights>
inline void multiply_tiles() {
    __asm__ volatile("tilezero %%tmm%c0\n\ttdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(to), "i"(numbers), "i"(weights));
}

// One tile of weights times a block of sixteen tokens.
template <int kind>
struct Sixteen {
    // Products of a group: of high and low bytes, of its halves, or one.
    static constexpr bool two_bytes = kind == H2O_Q8_0, halves = has_halves(kind), two = two_bytes || halves;

    const uint8_t *weights, *scales;
    const Rounded in;
    const int groups = in.columns / 32;
    // Memory of a tile must be in the nearest cache when it is loaded or read: groups are unpacked two ahead, and
    // added two later.
    alignas(64) uint8_t wide[4][512];
    alignas(64) int32_t products[4][2][256];

    Sixteen(const uint8_t *weights, const uint8_t *scales, const Rounded &in)
        : weights(weights), scales(scales), in(in) {}

    void unpack(int group) {
        const uint8_t *from = weights + levels_bytes(kind) * static_cast<ptrdiff_t>(group);
        uint8_t *to = wide[group & 3];
        for (int at = 0; at < levels_bytes(kind); at += 64) prefetch(from + 4096 + at);
        if constexpr (!two_bytes)
            each<8>([&](auto j) { _mm512_store_si512(to + 64 * j, levels<kind, decltype(j)::value>(from).all); });
    }

    // `odd` groups have tiles of their own, so that one is multiplied while the other one's products are stored.
    template <int odd>
    void multiply(int group) {
        const int8_t *numbers = in.numbers + static_cast<ptrdiff_t>(group) * kWidth * in.bytes;
        const uint8_t *from = two_bytes ? weights + 512 * static_cast<ptrdiff_t>(group) : wide[group & 3];
        load_tile<6 + odd>(from, 64);
        load_tile<4 + odd>(numbers, in.bytes);
        multiply_tiles<2 * odd, 4 + odd, 6 + odd>();
        if (!two) return;
        if (halves) load_tile<6 + odd>(from + 256, 64);
        load_tile<5 - odd>(numbers + (halves ? 16 : 32), in.bytes);
        multiply_tiles<2 * odd + 1, 5 - odd, 6 + odd>();
    }

    template <int odd>
    void store(int group) {
        store_tile<2 * odd>(products[group & 3][0]);
        if (two) store_tile<2 * odd + 1>(products[group & 3][1]);
    }

    void add_up(int group, Floats *sums) const {
        const Scales scale = scales_of<kind>(scales, group);
        const ptrdiff_t first = kWidth * static_cast<ptrdiff_t>(group);
        const Rounded here = {in.numbers, in.scales + first, in.sums + 2 * first, in.columns, in.width, in.bytes};
        for (int b = 0; b < kWidth; ++b) {
            Ints all = _mm512_load_si512(products[group & 3][0] + 16 * b), other = all;
            if (two) other = _mm512_load_si512(products[group & 3][1] + 16 * b);
            if (two_bytes) all = add(times_256(all), other);
            sums[b] = added<kind>(sums[b], add(all, splat(begin<kind>(here, b, 0))), 0, scale, here, b);
            if (halves) sums[b] = added<kind>(sums[b], add(other, splat(begin<kind>(here, b, 1))), 1, scale, here, b);
        }
    }

    template <int odd>
    void step(int group, Floats *sums) {
        if (group < groups) multiply<odd>(group);
        if (group >= 1 && group - 1 < groups) store<!odd>(group - 1);
        if (group + 2 < groups) unpack(group + 2);
        if (group >= 2 && group - 2 < groups) add_up(group - 2, sums);
    }
};

template <int kind>
inline void sixteen_times(const uint8_t *weights, const uint8_t *scales, const Rounded &in, Floats *out) {
    Sixteen<kind> all(weights, scales, in);
    Floats sums[kWidth];
    for (Floats &one : sums) one = splat(0.0f);
    for (int group = 0; group < 2 && group < all.groups; ++group) all.unpack(group);
    for (int group = 0; group < all.groups + 2; group += 2) {
        all.template step<0>(group, sums);
        all.template step<1>(group + 1, sums);
    }
    std::memcpy(out, sums, sizeof sums);
}

}  // namespace
