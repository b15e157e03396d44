// The formulas, over sixteen numbers at once. Included after one of the lanes_*.h, which is the form they take.
//
// The order of additions is part of what they promise: sixteen sums, number i into sum i % 16, one fused
// multiply-add each, then the tree of `sum`. So every form gives the same bits, on any number of threads.

#pragma once

#include "model.h"

namespace {

constexpr float kTiny = 1e-30f;  // a group whose largest number is smaller rounds to zeros

// e^x for x <= 0, as 2^n * e^r with |r| <= ln 2 / 2; 0 below -87. Relative error 2e-7.
inline Floats exp_of_negative(Floats x) {
    const Floats bounded = max(splat(-87.0f), x);
    const Floats n = round(mul(bounded, splat(1.44269504f)));
    const Floats r = fma(n, splat(1.42860677e-6f), fma(n, splat(-0.693148613f), bounded));  // ln 2 in two parts
    Floats p = splat(1.0f / 720);
    p = fma(p, r, splat(1.0f / 120));
    p = fma(p, r, splat(1.0f / 24));
    p = fma(p, r, splat(1.0f / 6));
    p = fma(p, r, splat(0.5f));
    p = fma(p, r, splat(1.0f));
    p = fma(p, r, splat(1.0f));
    return from(x, -87.0f, mul(p, power_of_two(n)));
}

// x / (1 + e^-x), where e is raised to negative numbers only.
inline Floats silu(Floats x) {
    const Floats e = exp_of_negative(sub(splat(0.0f), abs(x)));
    const Floats negative = min(x, splat(0.0f)), positive = sub(x, negative);
    return div(fma(negative, e, positive), add(splat(1.0f), e));
}

// x * weight / sqrt(mean of squares + epsilon), of `size` numbers (RMSNorm, arXiv 1910.07467); x and out go on with
// zeros up to a multiple of 16, the weights do not.
inline void norm(const float *x, const float *weight, int size, float epsilon, float *out) {
    Floats squares = splat(0.0f);
    for (int i = 0; i < size; i += 16) squares = fma(load(x + i), load(x + i), squares);
    const float mean = sum(squares) / static_cast<float>(size);
    const Floats by = div(splat(1.0f), splat(__builtin_sqrtf(mean + epsilon)));
    for (int i = 0; i < size; i += 16) {
        float rest[16] = {};
        for (int j = 0; i + 16 > size && i + j < size; ++j) rest[j] = weight[i + j];
        store(out + i, mul(mul(load(x + i), by), i + 16 > size ? load(rest) : load(weight + i)));
    }
}

// To whole numbers from -127 to 127.
inline Floats to_whole(Floats a) { return round(min(max(a, splat(-127.0f)), splat(127.0f))); }

// Rounds groups of 32 numbers to whole ones from -127 to 127 and a scale; with `two_bytes` what is left of each to 256ths
// of a whole one. A number that is none makes its scale none.
inline void round_to_bytes(const float *x, bool two_bytes, Rounded out) {
    const Floats zero = splat(0.0f);
    Floats none = zero;  // stays 0, unless there is one
    float *scales = out.scales;
    for (int i = 0; i < out.columns; i += 32, out = out.next()) {
        const Floats numbers[2] = {load(x + i), load(x + i + 16)};
        const float most = highest(max(abs(numbers[0]), abs(numbers[1])));
        const Floats by = splat(most > kTiny ? 127.0f / most : 0.0f);
        Floats all = zero;
        for (int half = 0; half < 2; ++half) {
            none = fma(numbers[half], zero, none);
            const Floats exact = mul(numbers[half], by), whole = to_whole(exact);
            if (two_bytes) {
                const Floats rest = to_whole(mul(sub(exact, whole), splat(256.0f)));
                store_two_bytes(out.numbers, 16 * half, whole, rest);
                all = add(all, fma(whole, splat(256.0f), rest));
            } else {
                store_bytes(out.numbers + 16 * half, whole);
                all = add(all, whole);
            }
        }
        out.scales[0] = two_bytes ? most / 127.0f / 256.0f : most / 127.0f;
        out.begins[0] = begin(static_cast<int32_t>(sum(all)), two_bytes);
    }
    if (sum(none) == 0) return;
    for (int i = 0; i < out.columns; i += 32, scales += out.width)
        *scales += sum(fma(load(x + i), zero, mul(load(x + i + 16), zero)));
}

// Some groups' products: sum = fma(products, scales, sum).
template <int B>
inline void add_groups(const Ints *products, Floats scale, const Rounded &in, Floats *sums) {
    for (int b = 0; b < B; ++b)
        sums[b] = fma(to_floats(products[b]), mul(scale, splat(in.scales[b])), sums[b]);
}

// One tile (16 rows) times B tokens, group after group.
template <int B, int bits>
inline void tile_times(const uint8_t *weights, const uint16_t *scales, Rounded in, Floats *sums) {
    for (int b = 0; b < B; ++b) sums[b] = splat(0.0f);
    for (int groups = in.columns / 32; groups; --groups, scales += 16, in = in.next()) {
        Ints products[B];
        if (bits == 4) {
            Small small[B];
            for (int b = 0; b < B; ++b) small[b] = begin4(in.begins[b]);
            for (int j = 0; j < 4; ++j, weights += 64) {
                prefetch(weights + 4096);
                const Bytes both = load_bytes(weights);
                const Bytes low = low_nibbles(both), high = high_nibbles(both);
                for (int b = 0; b < B; ++b) {
                    const int8_t *at = in.numbers + 32 * b + 4 * j;
                    small[b] = dot4(small[b], low, at);
                    small[b] = dot4(small[b], high, at + 16);
                }
            }
            for (int b = 0; b < B; ++b) products[b] = end4(small[b]);
        } else {
            for (int j = 0; j < 8; ++j) prefetch(weights + 4096 + 64 * j);
            for (int b = 0; b < B; ++b) products[b] = splat(in.begins[b]);
            times_two_bytes<B>(weights, in.numbers, products);
            weights += 512;
        }
        add_groups<B>(products, load_halves(scales), in, sums);
    }
}

// A group of one tile times B tokens, its weights unpacked.
template <int B>
inline void group_times(const Bytes (&wide)[8], Floats scale, const Rounded &in, Floats *sums) {
    Small small[B];
    Ints products[B];
    for (int b = 0; b < B; ++b) small[b] = begin4(in.begins[b]);
    for (int j = 0; j < 8; ++j) {
        const Bytes weights = kept(wide[j]);
        for (int b = 0; b < B; ++b) small[b] = kept(dot4(small[b], weights, in.numbers + 32 * b + 4 * j));
    }
    for (int b = 0; b < B; ++b) products[b] = end4(small[b]);
    add_groups<B>(products, scale, in, sums);
}
template <int B>
inline void group_times(const Words &wide, Floats scale, const Rounded &in, Floats *sums) {
    Ints products[B];
    for (int b = 0; b < B; ++b) products[b] = splat(in.begins[b]);
    times_words<B>(wide, in.numbers, products);
    add_groups<B>(products, scale, in, sums);
}
template <class Wide>
inline void group_times(const Wide &wide, Floats scale, const Rounded &in, int tokens, Floats *sums) {
    int b = 0;
    for (; kTokensAtOnce >= 8 && b + 8 <= tokens; b += 8) group_times<8>(wide, scale, in.of(b), sums + b);
    for (; b + 4 <= tokens; b += 4) group_times<4>(wide, scale, in.of(b), sums + b);
    for (; b < tokens; ++b) group_times<1>(wide, scale, in.of(b), sums + b);
}

// One tile times up to 16 tokens: a group's weights are unpacked once for all of them. The same sums.
template <int bits>
inline void tile_times_many(const uint8_t *weights, const uint16_t *scales, Rounded in, int tokens, Floats *sums) {
    for (int b = 0; b < tokens; ++b) sums[b] = splat(0.0f);
    for (int groups = in.columns / 32; groups; --groups, scales += 16, in = in.next()) {
        const Floats scale = load_halves(scales);
        if (bits == 4) {
            Bytes wide[8];
            for (int j = 0; j < 4; ++j, weights += 64) {
                prefetch(weights + 4096);
                const Bytes both = load_bytes(weights);
                wide[j] = low_nibbles(both);
                wide[4 + j] = high_nibbles(both);
            }
            group_times(wide, scale, in, tokens, sums);
        } else {
            for (int j = 0; j < 8; ++j) prefetch(weights + 4096 + 64 * j);
            group_times(to_words(weights), scale, in, tokens, sums);
            weights += 512;
        }
    }
}

#if !defined(H2O_SIXTEEN)
constexpr bool kSixteen = false;  // whether sixteen tokens are multiplied in another way: lanes_amx.h. The same sums.
inline void begin_sixteen() {}
inline void end_sixteen() {}
template <int bits>
inline void sixteen_times(const uint8_t *, const uint16_t *, const Rounded &, Floats *) {}
#endif

// One tile times a block of up to 16 tokens.
template <int bits>
inline void block_times(const uint8_t *weights, const uint16_t *scales, const Rounded &in, int tokens, Floats *sums) {
    if (kSixteen && tokens == kWidth)
        sixteen_times<bits>(weights, scales, in, sums);
    else
        tile_times_many<bits>(weights, scales, in, tokens, sums);
}

// Some tiles times `tokens` tokens from `first` on, of one block; `out(sums, token, tile)` takes each. Where `B` is 0 as
// many as there are, else B.
template <int B, class Out>
inline void tiles_times(const h2o_matrix &m, int tile, int end, const Rounded &in, int first, int tokens, Out &out) {
    const int groups = m.columns / 32;
    const size_t tile_bytes = static_cast<size_t>(groups) * (m.bits == 4 ? 256 : 512);
    for (; tile < end; ++tile) {
        const uint8_t *weights = m.weights + tile * tile_bytes;
        const uint16_t *scales = m.scales + static_cast<size_t>(tile) * groups * 16;
        Floats sums[B ? B : kWidth];
        if constexpr (B == 0)
            m.bits == 4 ? block_times<4>(weights, scales, in.of(first), tokens, sums)
                        : block_times<8>(weights, scales, in.of(first), tokens, sums);
        else
            m.bits == 4 ? tile_times<B, 4>(weights, scales, in.of(first), sums)
                        : tile_times<B, 8>(weights, scales, in.of(first), sums);
        for (int b = 0; b < tokens; ++b) out(sums[b], first + b, tile);
    }
}

// A thread's share of a product: a run of tiles at a time, all tokens. Tiles are taken in pairs.
template <class Out>
inline void product(Job &job, const h2o_matrix &m, const Rounded &in, Out out) {
    const int tiles = m.rows / 16;
    int run = (tiles / (job.team->threads * 2) + 1) & ~1;  // few: to take one is a cache line's way between processors
    run = run < 2 ? 2 : run > 16 && job.tokens > 1 ? 16 : run;
    const bool sixteen = kSixteen && job.tokens >= kWidth;
    if (sixteen) begin_sixteen();
    for (int tile; (tile = take(job.team->next, run, tiles)) >= 0;) {
        const int end = tile + run < tiles ? tile + run : tiles;
        int token = 0;
        while (kMany && token + kMany <= job.tokens) {
            const int some = job.tokens - token < kWidth ? job.tokens - token : kWidth;
            tiles_times<0>(m, tile, end, in, token, some, out);
            token += some;
        }
        for (; kTokensAtOnce >= 8 && token + 8 <= job.tokens; token += 8)
            tiles_times<kTokensAtOnce >= 8 ? 8 : 1>(m, tile, end, in, token, 8, out);
        for (; kTokensAtOnce >= 4 && token + 4 <= job.tokens; token += 4)
            tiles_times<kTokensAtOnce >= 4 ? 4 : 1>(m, tile, end, in, token, 4, out);
        for (; token + 2 <= job.tokens; token += 2) tiles_times<2>(m, tile, end, in, token, 2, out);
        for (; token < job.tokens; ++token) tiles_times<1>(m, tile, end, in, token, 1, out);
    }
    if (sixteen) end_sixteen();
}

// A head turned by angles of its pairs, or back: (a cos - b sin, b cos + a sin).
template <bool back = false>
inline void turn(const float *x, const float *cosines, const float *sines, int pairs, int size, float *out) {
    int i = 0;
    for (; i + 16 <= pairs; i += 16) {
        const Floats a = load(x + i), b = load(x + i + pairs), cosine = load(cosines + i);
        const Floats sine = back ? sub(splat(0.0f), load(sines + i)) : load(sines + i);
        store(out + i, fma(a, cosine, sub(splat(0.0f), mul(b, sine))));
        store(out + i + pairs, fma(b, cosine, mul(a, sine)));
    }
    for (; i < pairs; ++i) {
        const float a = x[i], b = x[i + pairs], sine = back ? 0.0f - sines[i] : sines[i];
        out[i] = fma(a, cosines[i], 0.0f - b * sine);
        out[i + pairs] = fma(b, cosines[i], a * sine);
    }
    for (i = 2 * pairs; i < size; ++i) out[i] = x[i];
}

// Turns by whole positions, with angles of all positions from 0 on [positions, stride]: cos(-a) is cos(a), and
// sin(-a) is -sin(a).
inline void turn_by(const float *x, int positions, const float *cosines, const float *sines, int stride, int pairs,
                    int size, float *out) {
    const ptrdiff_t at = static_cast<ptrdiff_t>(positions < 0 ? -positions : positions) * stride;
    if (positions < 0)
        turn<true>(x, cosines + at, sines + at, pairs, size, out);
    else
        turn<false>(x, cosines + at, sines + at, pairs, size, out);
}

inline float dot(const float *a, const float *b, int size) {
    Floats products = splat(0.0f);
    for (int i = 0; i < size; i += 16) products = fma(load(a + i), load(b + i), products);
    return sum(products);
}

// How many things of so many sums each go together, so that the sums stay in registers: 1, 2, 4, 8 or 16.
constexpr int at_once(int sums) {
    int things = 1;
    while (2 * things * sums <= kSumsAtOnce) things *= 2;
    return things;
}

constexpr int kTile = 32;  // keys whose components stand side by side: [D, 32]

// Products of some vectors [count, D] with the 16 x `parts` keys of a tile [D, 16 x parts]. `kSize` is D where it is known.
template <int kSize, int count, int parts>
inline void tile_products(const float *vectors, const float *tile, int size, Floats (&products)[count][parts]) {
    constexpr int together = count < at_once(parts) ? count : at_once(parts);
    if (kSize) size = kSize;
    for (int first = 0; first < count; first += together, vectors += together * size) {
        Floats sums[together][parts];
        for (auto &one : sums)
            for (Floats &part : one) part = splat(0.0f);
        for (int i = 0; i < size; ++i) {
            Floats keys[parts];
            for (int p = 0; p < parts; ++p) keys[p] = load(tile + (i * parts + p) * 16);
            for (int v = 0; v < together; ++v) {
                const Floats mine = splat(vectors[v * size + i]);
                for (int p = 0; p < parts; ++p) sums[v][p] = fma(mine, keys[p], sums[v][p]);
            }
        }
        for (int v = 0; v < together; ++v) std::memcpy(products[first + v], sums[v], sizeof sums[v]);
    }
}

template <int count, int parts>
inline void tile_products(const float *vectors, const float *tile, int size, Floats (&products)[count][parts]) {
    if (size == 64)
        tile_products<64>(vectors, tile, size, products);
    else if (size == 128)
        tile_products<128>(vectors, tile, size, products);
    else
        tile_products<0>(vectors, tile, size, products);
}

}  // namespace
