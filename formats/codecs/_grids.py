"""The grids of the IQ types: sets of points with 8 (or 4) coordinates, of which a block names one for as many elements.

They are part of the format (`iq2xxs_grid` and others in ggml-common.h of llama.cpp). A point's number has the index of its first
coordinate's value in its lowest bits, two of them (three where there are eight values); points are sorted by that number. Kept here
is a bitmap of the numbers that occur, compressed.
"""
from __future__ import annotations

import base64
import zlib
from functools import cache

import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.int8]

_TWO_BITS = (8, 25, 43)
_VALUES: dict[str, tuple[int, ...]] = {
    "IQ2_XXS": _TWO_BITS, "IQ2_XS": _TWO_BITS, "IQ2_S": _TWO_BITS, "IQ1_S": (-1, 0, 1),
    "IQ3_XXS": (4, 12, 20, 28, 36, 44, 52, 62), "IQ3_S": (1, 3, 5, 7, 9, 11, 13, 15),
}
_BITMAPS = {
    "IQ2_XXS":
    "c-rk)O|pX^49+-Ra14%;CCB;}9)!g^=mSMXo=_Cqr)|Dzr_eSD`49eBL)H=*0t^vZP2^rP4E4h&!d@-Q0giO_|9D*kCzl4f7#aJ$ius4{JHKJS<~0LGdcGC?GxQi"
    "WGJ__RXt(e}hF<TIc0HJ2QG~Y&{+<9#x<lve;4SbtDBtt%gKsnZQHm{$k<p}oEQHhepu&OHfp|;*TfO*@Lq2b+mPr76Lj0Bd82hCz)37rDQ;K8xeD5kC_*P7PAL!"
    "=(n`Tp-gZ-b<5Po&^dsA=SUuJo{r^BLM|7@L4_=5}c&EvEay%zv85`S#fHC<inTKk|)-Crr~SOs>|57%(Os{-(!q2l?cG<@YJJhYgi-x&|D>a&^zg73pL|8ph}RK"
    "7HvQt#vE3n&zqE>{7ViuA2{|GeJtt^KdU^A=<^>Z;n^;roB^!By<cpV#6m;~(38<Wq0k7oMOX_j-XqAP@)y0>Q`Q7euW|!v",
    "IQ2_XS":
    "c-rk)F|NZP47E@O)KhR2k5y0QAqQdTK|i4ozyVVD9TLfJNDB!D+xQvtwl91W!1jCsfP12A?r{A!^aHsU?g=@3KWzQ0Z<B!`q<LRKPD?%kZt~gqtzWrc8`^qodf2p"
    "EKXSZiVmie2#CZ|R@&5Z_QR=Y9D<ku}*Slx`kG_v`d}f~+y?6O;*Xf3Tp(C53$8k>oXV^JWj$-fE!m~YK_3zcO?SEo+rkefT&r-ENfMM;Cjo{^D&%e>6rfOX*r~k"
    "rFOumhCEc=8_3acqcWsk8S5ZsUdQy%Q{|H|Us^C!Y|&Wq=b#6SAL4=gVf;Tdzao?JoFOIPEb0^R7qQylu{{^#eqWB&bQKzqW^g&oY8{V~fs$OxV|-BKs>(s=rf`w"
    "f%ke7Nc9&#~Oh|9RY*m^<<4-yU?~^RWVePO~)~&SAfdIs9VZ_I#?cRT&TnZpi;x-DerurTPxB6`eUp*ak<p`R85A!SnpG)IWil0L<!|#Pc*(OBD4FDY(-GK;nN@<"
    "<`8u>+`Ofs(sg8c4yZVGVS>%|I7qxXo6)ZS6&U)9`EexdZhTz?PJ*m08QF~esF?XX53(c4vjM=-}8^E5zlTU1OkCTAP@)yf@|OplWvCZ",
    "IQ2_S":
    "c-rk)JF<l!49z$eEF(*yWLy;m3$b9KPY?w{{NQUYGdYEGK@8+1<a7PHXm0_+bI}0a8gK|F!n}bnzi79uGvLAG*KxhYu+GJ?Lj}d>k2v=Y=ZIrxEBWibZ$8JiU-f<"
    "3H_g{?pAq%KEZ>2GQh`lhs|)#>$hX@HT=!oI8U{k-Kk*R#09yV%;lG60_}_UmiLVd*-`cmHr}C-Y;}d)IchSCCK0RL{KUuaEug-lZ7!im6hkLDp9@zMQRNDj3f4K"
    "X>{|_EuEw92m{@>bnVni2q|8(yfzeOPW(;eq}h<Uj>^cM)miT~>YIsY0O|Lu{N`S=|2qpI#{XZ&IE%Vqq>_C9(h{?8rz8?vu@ls{d?pJC(wU4HM%zq+4?C;6OxDg"
    "V<y_%Gxm+~*e-H1EuVIm41H?q2(UtuI&q^dw^U!oEkH!4-Ec)v8PX(%)uA<lB0(T%tiB7$yFj*g>CtE||;w2&50%`~7cyUm5>(Py9#b{_5``m+M=xk`Iq{1?J9&w"
    "hup#U|)5Y-!ngW7eC9drau4ct*@+R;{Vhg`ETk6&EyyT)~aJwg7N=4QdcALT5<l5ssBI6o&A4fUtQbreP91E>tcIe-qMQq?M>g+5~2_U0)apv5C{Z<pTr+RI`VG",
    "IQ3_XXS":
    "c-l=-K?=h#3{ye}VW$qZd!FLL9+1HvWO^EVh1sdkoaHp#R7#szmgHo6m{j1}>~2z^o7e*jro|>W6f;suxGq5ThwwrH-tdy3S=*8VCKknJ;ww~xN=C-Lt2kc1f`n?"
    "I#<sN&{qc;xi`rsIog^>xCi>0vO72GEj+P?`#G30*;dkafo0(MD70~26E5oy)Fh-PS2J_iYxE!Gh>5A3e2Aw8l#Lz*UZ2xyz&!sE!Xy7=t?heopubnm$;UMyR4j1"
    "Wf!f;*xLWT6+u!rw*Hy!tqyDZ17JdzPtf@!~_J7yrh&WtZi",
    "IQ3_S":
    "c-k#dK}rKb5Ud?m7(7iN59ovqtiR~U2pdlmS^v`sIn3TR;sZue5Z@6$Amj-`@D=vV+J}a&>aMEU{rNq)_mDQ1)6rXa`g-zl6)-xV9&D<-%sLtw(&E+K!8jAZAn=F"
    "Ih`{BX?s3iZ9eL!0y{saQwa{i<M_rV8i?Gza!ZNf5Tx$=B>&%}&x2aFnb2>I1DZfG3@eJJ?w}Hf9jj>U<u}qaX$V(Q{%bJZi0qBwX8+P2=0D&xpG^*kpx3aC_+^w"
    "oo1gDy;frCMb5s>PfCelExhl@Z5=M_J&lZwQK<TIaOt1Nd_t_Z4Nkqr(Irw~QLK*sjOloy2EUU#sN3YKfvLC9pG+yhGG#kO><KBF1{I~{B$E!8AqIlE}-BNQAl`R"
    "33C|JNFjj93D(#a!oZudm_a(c~OHe<Yb)Y4R?AVbTWv01QA~hX",
    "IQ1_S":
    "c-rk)!D{135G_PwgfR0BeGn#xd_*CHF~aB@nkCH9-_RJ5!;+6^29Z<PZ)k>LS#t0<=&;OT4*rI%s+QuGoiNeNVb+Wa61ydLsj92$)ho5G1m^%0RP+b*UCDZoB~*s"
    "57ntkHo_;sT@OuS_De}6+c>nh$=tER`DQo%`-K{}6Aia$~U`u)tN>^jNKb6%6TKgH<jtx$E`pN#{RsUHZ+lBC@*IeOS{+G0F&-VZS<sb2H1C8AV|DcScgRN!1l|E"
    "v_rwuv%_A-8Z%v}bT`SCp|aOn&BTvJqY%h7!3wowFgT}#|+*cp!dlRKDplphPn`=8v}Z##fQ=Y2-J+XAt-!p1#^{5i9~)qEbewl<CCM7Xm>tRE9#zcV_gLiQK>nx"
    "fD7+eZ02tmFLW^SD9fYFY0``HwI7QONaS{a#UYa=h;Y<xkQ-FU~(ewhSaYIX?g&T!ry|hdq9Pr|TJ5{bTjN>FXcH_G9or!5k_K{x3)SVdTHNy855xcb1{=0o7mC_"
    "tPS}|BNdqxaMj@otV(Qg>JOJ@85*fg1eYb!hZyX5cI>H<9^Ue9S?Fx_|Ldo<H0ljGY+e$zDis=?oX}#D)>+mi>M~~Uuw2jV`D>okNf*tKUmh+=p8<4#(|ZsM*Ss`"
    "|Ab;L^qpz`|7xMGt2ctLH7d*gDdABs=hM~xp8GEzJ3jv$LOf30llJ$0I+ycoO*-NEOQ?Ox`pu!+k$y`&U>oV*;Zgej(I2}5CEnJAJQ(Dg-}<AcICV$i4XduyEC2r"
    "If1tRdmi+Tik_WBDv;0$V^1sB|$MH?A()XM<e(iJSr+Ve^s_H-V-xThpuOj8M8u7mz{$T%bjSD)bl=#(%|MaWRu&_49lXuHU%^F(57v^<K{L94*Ub!`fI31ABKQU"
    "{wvZwo+tlv|-8&|u=GF!|1pOY9sf&+e`)IZuJx=XxR`u^WG<oyky#dhq!ShFGixMcevb;;aTX1N;vKk(OQe0}~6{cwYiJ`)_sUY&oTpA)9@-(h|)b*TIC^oG=*61"
    "wt*`u@U&c{DkjAjLk@7@oYSeswy@|6p&)_T#1fi=N-mbEVIz9xpEEhwAJ+u7>~l@P3C_mAT|UJQp+mHE@vro<VNM^H+#F&%cS_XU1SU;q6Z&@wB@3|BC+GQU7h+0"
    "ZSA0U%NB$d`kF?d+EO)g}>aGTgY&V{~?|QJj(m0VU8Pw{BqCoUZ=*DmiJ7$80}XO{3jkE>-x&-|0RF%wft3Bnb0Lm7xMqp=ybIs`t)=2Z>V2*aBB}2+#%`nig~A!"
    "IUu)Z`77^dGQF}+*!VqGKY)Mmmj8rDrSOAB2d1-sYyVZ&|17i2GRrKp%reU?znA<6ZlGyw",
}


@cache
def grid(name: str) -> _Numbers:
    """The points of a type's grid, one row each: (256 to 2048, 8 or 4) i8. IQ1_M has IQ1_S's."""
    values = np.array(_VALUES[name], np.int8)
    width = 3 if len(values) == 8 else 2
    bitmap = np.frombuffer(zlib.decompress(base64.b85decode(_BITMAPS[name])), np.uint8)
    numbers = np.flatnonzero(np.unpackbits(bitmap))[:, None]
    points: _Numbers = values[numbers >> np.arange(0, 16 if width == 2 else 12, width) & (1 << width) - 1]
    points.flags.writeable = False
    return points
