// The formulas, over sixteen numbers at once. Included after one of the lanes_*.h, which is the form they take.
//
// The order of additions is part of what they promise: sixteen sums, number i into sum i % 16, one fused
// multiply-add each, then the tree of `sum`. So every form gives the same bits, on any number of threads.

#pragma once

#include <utility>

#include "model.h"
#include "weights.h"

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

// x / (1 + e^-y) where y has the sign of x; e is raised to negative numbers only.
inline Floats gated(Floats x, Floats y) {
    const Floats e = exp_of_negative(sub(splat(0.0f), abs(y)));
    const Floats negative = min(x, splat(0.0f)), positive = sub(x, negative);
    return div(fma(negative, e, positive), add(splat(1.0f), e));
}

inline Floats silu(Floats x) { return gated(x, x); }

// x (1 + tanh(y / 2)) / 2 with y = sqrt(8 / pi) (x + .044715 x^3): GELU, as all of these models approximate it.
inline Floats gelu(Floats x) {
    const Floats cubic = fma(mul(mul(x, x), splat(0.044715f)), x, x);
    return gated(x, mul(cubic, splat(1.59576912f)));
}

// cap * tanh(x / cap), as a fraction of e^-|2x / cap|.
inline Floats capped(Floats x, float cap) {
    const Floats one = splat(1.0f), e = exp_of_negative(mul(abs(x), splat(-2.0f / cap)));
    const Floats size = div(mul(splat(cap), sub(one, e)), add(one, e)), positive = from(x, 0.0f, size);
    return sub(positive, sub(size, positive));
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
// of a whole one. A NaN makes its scale NaN.
inline void round_to_bytes(const float *x, bool two_bytes, Rounded out) {
    const Floats zero = splat(0.0f);
    Floats none = zero;  // stays 0, unless there is one
    float *scales = out.scales;
    for (int i = 0; i < out.columns; i += 32, out = out.next()) {
        const Floats numbers[2] = {load(x + i), load(x + i + 16)};
        const float most = highest(max(abs(numbers[0]), abs(numbers[1])));
        const Floats by = splat(most > kTiny ? 127.0f / most : 0.0f);
        for (int half = 0; half < 2; ++half) {
            none = fma(numbers[half], zero, none);
            const Floats exact = mul(numbers[half], by), whole = to_whole(exact);
            Floats all = whole;
            if (two_bytes) {
                const Floats rest = to_whole(mul(sub(exact, whole), splat(256.0f)));
                store_two_bytes(out.numbers, 16 * half, whole, rest);
                all = fma(whole, splat(256.0f), rest);
            } else {
                store_bytes(out.numbers + 16 * half, whole);
            }
            out.sums[half] = static_cast<int32_t>(sum(all));
        }
        out.scales[0] = two_bytes ? most / 127.0f / 256.0f : most / 127.0f;
    }
    if (sum(none) == 0) return;
    for (int i = 0; i < out.columns; i += 32, scales += out.width)
        *scales += sum(fma(load(x + i), zero, mul(load(x + i + 16), zero)));
}

// Calls `one` with each number as a constant.
template <int... numbers, class One>
inline void each(std::integer_sequence<int, numbers...>, const One &one) {
    (one(std::integral_constant<int, numbers>()), ...);
}
template <int count, class One>
inline void each(const One &one) {
    each(std::make_integer_sequence<int, count>(), one);
}

// Calls `one` with a kind of weights as a constant.
template <class One>
inline auto by_kind(int kind, const One &one) {
    switch (kind) {
        case H2O_Q4_0: return one(std::integral_constant<int, H2O_Q4_0>());
        case H2O_Q4_1: return one(std::integral_constant<int, H2O_Q4_1>());
        case H2O_Q5_0: return one(std::integral_constant<int, H2O_Q5_0>());
        case H2O_Q5_1: return one(std::integral_constant<int, H2O_Q5_1>());
        case H2O_Q4_K: return one(std::integral_constant<int, H2O_Q4_K>());
        case H2O_Q5_K: return one(std::integral_constant<int, H2O_Q5_K>());
        case H2O_Q6_K: return one(std::integral_constant<int, H2O_Q6_K>());
        default: return one(std::integral_constant<int, H2O_Q8_0>());
    }
}

// Columns 4j to 4j + 3 of a group of at most 6 bits, as levels without sign. [16 rows, 4]
template <int kind, int j>
inline Bytes levels(const uint8_t *group) {
    constexpr int bits = level_bits(kind);
    const Bytes low = shifted<j < 4 ? 0 : -4>(load_bytes(group + 64 * (j % 4)), 15);
    if constexpr (bits == 5)
        return either(low, shifted<4 - j>(load_bytes(group + 256), 16));
    else if constexpr (bits == 6)
        return either(low, shifted<4 - 2 * (j % 4)>(load_bytes(group + 256 + 64 * (j / 4)), 48));
    else
        return low;
}

// Scales of a group of 16 rows; `other`: of the last 16 columns, or minima.
struct Scales {
    Floats scale, other;
};

template <int kind>
inline Scales scales_of(const uint8_t *scales, int group) {
    if constexpr (has_blocks(kind)) {
        const uint8_t *block = scales + group / 8 * 8 * scales_bytes(kind);
        const Floats unit = load_halves(block);
        if constexpr (has_halves(kind)) {
            const uint8_t *own = block + 32 + 32 * (group % 8);
            const Floats middle = splat(128.0f);
            return {mul(unit, sub(load_levels(own, 8), middle)), mul(unit, sub(load_levels(own + 16, 8), middle))};
        } else {
            const uint8_t *own = block + 64 + 32 * (group % 8);
            return {mul(unit, load_levels(own, 8)), mul(load_halves(block + 32), load_levels(own + 16, 8))};
        }
    } else {
        const uint8_t *own = scales + group * scales_bytes(kind);
        return {load_halves(own), has_minimum(kind) ? load_halves(own + 32) : splat(0.0f)};
    }
}

// What products with token b begin with, so that a level counts from that of 0.
template <int kind>
inline int32_t begin(const Rounded &in, int b, int half) {
    const int32_t *sums = in.sums + 2 * b;
    if (has_minimum(kind)) return 0;
    if (has_halves(kind)) return -zero_level(kind) * sums[half];
    return kind == H2O_Q8_0 ? begin8(sums[0] + sums[1]) : -zero_level(kind) * (sums[0] + sums[1]);
}

// The sum with a group's products with token b, or with those of its first or last 16 columns.
template <int kind>
inline Floats added(Floats sum, Ints products, int half, const Scales &scales, const Rounded &in, int b) {
    const Floats step = splat(in.scales[b]);
    sum = fma(to_floats(products), mul(has_halves(kind) && half ? scales.other : scales.scale, step), sum);
    if (!has_minimum(kind)) return sum;
    const float all = static_cast<float>(in.sums[2 * b] + in.sums[2 * b + 1]);
    return fma(scales.other, splat(-all * in.scales[b]), sum);
}

// A group of at most 6 bits times B tokens; `levels` gives the weights of column 4j on.
template <int kind, int B, class Levels>
inline void group_times(const Levels &levels, const Scales &scales, const Rounded &in, Floats *sums) {
    Ints products[B];
    each<4>([&](auto eight) {
        constexpr int j = 2 * decltype(eight)::value;
        if (j == 0 || (has_halves(kind) && j == 4))
            for (int b = 0; b < B; ++b) products[b] = splat(begin<kind>(in, b, j / 4));
        const Bytes first = kept(levels(std::integral_constant<int, j>()));
        const Bytes second = kept(levels(std::integral_constant<int, j + 1>()));
        for (int b = 0; b < B; ++b)
            products[b] = kept(dot_twice(products[b], first, second, in.numbers + 32 * b + 4 * j));
        if (j == 6 || (has_halves(kind) && j == 2))
            for (int b = 0; b < B; ++b) sums[b] = added<kind>(sums[b], products[b], j / 4, scales, in, b);
    });
}

// A group of 8 bits times B tokens; `times` multiplies.
template <int B, class Times>
inline void group_times_two_bytes(const Times &times, const Scales &scales, const Rounded &in, Floats *sums) {
    Ints products[B];
    for (int b = 0; b < B; ++b) products[b] = splat(begin<H2O_Q8_0>(in, b, 0));
    times(products);
    for (int b = 0; b < B; ++b) sums[b] = added<H2O_Q8_0>(sums[b], products[b], 0, scales, in, b);
}

// One tile (16 rows) times B tokens, group after group.
template <int kind, int B>
inline void some_times(const uint8_t *weights, const uint8_t *scales, Rounded in, Floats *out) {
    Floats sums[B];
    for (Floats &one : sums) one = splat(0.0f);
    const int groups = in.columns / 32;
    for (int group = 0; group < groups; ++group, weights += levels_bytes(kind), in = in.next()) {
        for (int at = 0; at < levels_bytes(kind); at += 64) prefetch(weights + 4096 + at);
        const Scales scale = scales_of<kind>(scales, group);
        if constexpr (kind == H2O_Q8_0)
            group_times_two_bytes<B>([&](Ints *all) { times_two_bytes<B>(weights, in.numbers, all); }, scale, in, sums);
        else
            group_times<kind, B>([&](auto j) { return levels<kind, decltype(j)::value>(weights); }, scale, in, sums);
    }
    std::memcpy(out, sums, sizeof sums);
}

// A group, unpacked, times B tokens.
template <int B>
inline void unpacked_times(const Words &wide, const Scales &scales, const Rounded &in, Floats *sums) {
    group_times_two_bytes<B>([&](Ints *all) { times_words<B>(wide, in.numbers, all); }, scales, in, sums);
}

// One tile times up to 16 tokens: a group's weights are unpacked once for all of them. The same sums.
template <int kind>
inline void many_times(const uint8_t *weights, const uint8_t *scales, Rounded in, int tokens, Floats *sums) {
    for (int b = 0; b < tokens; ++b) sums[b] = splat(0.0f);
    const int groups = in.columns / 32;
    for (int group = 0; group < groups; ++group, weights += levels_bytes(kind), in = in.next()) {
        for (int at = 0; at < levels_bytes(kind); at += 64) prefetch(weights + 4096 + at);
        const Scales scale = scales_of<kind>(scales, group);
        const auto by_tokens = [&](const auto &times) {
            int b = 0;
            for (; kTokensAtOnce >= 8 && b + 8 <= tokens; b += 8) times(std::integral_constant<int, 8>(), b);
            for (; b + 4 <= tokens; b += 4) times(std::integral_constant<int, 4>(), b);
            for (; b < tokens; ++b) times(std::integral_constant<int, 1>(), b);
        };
        if constexpr (kind == H2O_Q8_0) {
            const Words wide = to_words(weights);
            by_tokens([&](auto B, int b) { unpacked_times<decltype(B)::value>(wide, scale, in.of(b), sums + b); });
        } else {
            Bytes wide[8];
            each<8>([&](auto j) { wide[j] = levels<kind, decltype(j)::value>(weights); });
            const auto unpacked = [&](auto j) { return wide[j]; };
            by_tokens([&](auto B, int b) {
                group_times<kind, decltype(B)::value>(unpacked, scale, in.of(b), sums + b);
            });
        }
    }
}

}  // namespace
#if defined(H2O_SIXTEEN)
#include "lanes_amx.h"
#endif
namespace {

#if !defined(H2O_SIXTEEN)
constexpr bool kSixteen = false;  // whether sixteen tokens are multiplied in another way. The same sums.
inline void begin_sixteen(bool) {}
inline void end_sixteen() {}
template <int kind>
inline void sixteen_times(const uint8_t *, const uint8_t *, const Rounded &, Floats *) {}
#endif

// One tile times a block of up to 16 tokens.
template <int kind>
void tile_times(const uint8_t *weights, const uint8_t *scales, const Rounded &in, int tokens, Floats *sums) {
    if (kSixteen && tokens == kWidth) return sixteen_times<kind>(weights, scales, in, sums);
    if (kMany && tokens >= kMany) return many_times<kind>(weights, scales, in, tokens, sums);
    int b = 0;
    for (; kTokensAtOnce >= 8 && b + 8 <= tokens; b += 8)
        some_times<kind, kTokensAtOnce >= 8 ? 8 : 1>(weights, scales, in.of(b), sums + b);
    for (; kTokensAtOnce >= 4 && b + 4 <= tokens; b += 4)
        some_times<kind, kTokensAtOnce >= 4 ? 4 : 1>(weights, scales, in.of(b), sums + b);
    for (; b + 2 <= tokens; b += 2) some_times<kind, 2>(weights, scales, in.of(b), sums + b);
    if (b < tokens) some_times<kind, 1>(weights, scales, in.of(b), sums + b);
}

// Some tiles times all tokens; `out(sums, token, tile)` takes each.
template <class Out>
inline void tiles_times(const h2o_matrix &m, int first, int end, const Rounded &in, int tokens, const Out &out) {
    const auto times = by_kind(m.kind, [](auto kind) { return tile_times<decltype(kind)::value>; });
    const size_t groups = m.columns / 32;
    const bool sixteen = kSixteen && tokens >= kWidth;
    if (sixteen) begin_sixteen(has_halves(m.kind));
    for (int token = 0; token < tokens; token += kWidth) {
        const int some = tokens - token < kWidth ? tokens - token : kWidth;
        for (size_t tile = first; tile < static_cast<size_t>(end); ++tile) {
            Floats sums[kWidth];
            times(m.weights + tile * groups * levels_bytes(m.kind), m.scales + tile * groups * scales_bytes(m.kind),
                  in.of(token), some, sums);
            for (int b = 0; b < some; ++b) out(sums[b], token + b, static_cast<int>(tile));
        }
    }
    if (sixteen) end_sixteen();
}

// Tiles that a thread takes at once: few, since to take some is a cache line's way between processors. In pairs.
inline int run_of(const Job &job, int tiles) {
    const int run = (tiles / (job.team->threads * 2) + 1) & ~1;
    return run < 2 ? 2 : run > 16 && job.tokens > 1 ? 16 : run;
}

// A thread's share of the products with some matrices, one below the other: a run of tiles at a time, all tokens.
template <class Out>
inline void product(Job &job, const h2o_matrix *matrices, int count, const Rounded &in, const Out &out) {
    int tiles = 0;
    for (int i = 0; i < count; ++i) tiles += matrices[i].rows / 16;
    const int run = run_of(job, tiles);
    for (int first; (first = take(job.team->next, run, tiles)) >= 0;) {
        for (int i = 0, before = 0; i < count; before += matrices[i++].rows / 16) {
            const int from = first > before ? first - before : 0;
            const int all = matrices[i].rows / 16, to = first + run - before < all ? first + run - before : all;
            if (from < to)
                tiles_times(matrices[i], from, to, in, job.tokens,
                            [&](Floats sums, int token, int tile) { out(sums, token, before + tile); });
        }
    }
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
