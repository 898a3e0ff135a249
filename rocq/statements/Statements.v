(* What a theorem on one sample says, as data, and what that means; the normal form of a side.

   A side is a sum of products of atoms with constant coefficients.  In the normal form each mean is written over
   the products of powers that occur in it: E_m[2 lam k1 s + s] is 2 lam E_m[k1 s] + E_m[s]. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring.
Import ListNotations.
Open Scope R_scope.

Definition gterm := (ep * option (index * measure * ep))%type.   (* c E_m[a], or a constant c *)
Inductive atom :=
| Mean (i : index) (m : measure) (a : ep)           (* E_m[a], score functions among its variables *)
| MeanGradient (i : index) (m : measure) (L : ep)   (* E_m[grad L] *)
| Gradient (side : list gterm).                     (* grad of a linear combination of means *)
Definition side := list (ep * list atom).

Section Meaning.
Variable S : setting.
Variable par : nat -> bool -> R.     (* par i true: a parameter that is not 0 *)
Notation X := (outcome S). Notation world := (world S).

(* at one position of a slot; at_log l is log q there *)
Definition each (b : base) (l : R) (x : X) : R :=
  match b with
  | K1 => l - ln (p S x) | ToOld => l - ln (old S x) | W => l - ln (mu S x) | LogQ => l | Length => INR (List.length (snd x)) | Given i => given S i x
  | Fn i d => fn S i d l x | Score => s S x | Any => any S 0 [x] end.
Definition scope (z : slot) : nat := match z with Past => 1 | Now => 2 | Future => 3 | _ => 0 end.
(* r: the theta at which regions are taken *)
Definition val (v : var) (r t : R) (w : world) : R :=
  match v with
  | Sample Whole Length _ => length S (w Whole)
  | Sample z Any _ => any S (scope z) (w z)
  | Sample z b sg => Sum (w z) (fun x => each b (ln (q S (if sg then theta S else t) x)) x)
  | Par i nz => par i nz
  | Named zs i Still sg => let r := if sg then theta S else r in names S i r r (map w zs)
  | Named zs i Moving sg => names S i (if sg then theta S else r) (if sg then theta S else t) (map w zs)
  | Named zs i Slope _ => Derive (fun t => names S i (theta S) t (map w zs)) (theta S) end.
Definition as_loss (a : ep) : loss S := fun t w => den (fun v => val v t t w) a.
(* what autograd differentiates: regions stand still *)
Definition held (a : ep) : loss S := fun t w => den (fun v => val v (theta S) t w) a.
Definition env (w : world) (v : var) : R := val v (theta S) (theta S) w.
Definition penv (v : var) : R := match v with Par i nz => par i nz | _ => 1 end.

Definition moving (i : index) (m : measure) (a : ep) (t : R) : R := mean_at S t m i (as_loss a t).
Fixpoint moved (l : list gterm) (t : R) : R :=
  match l with
  | [] => 0
  | (c, Some (i, m, a)) :: l => den penv c * moving i m a t + moved l t
  | (c, None) :: l => den penv c + moved l t end.
Definition datom (x : atom) : R :=
  match x with
  | Mean i m a => mean S m i (fun w => den (env w) a)
  | MeanGradient i m L => mean S m i (grad S (held L))
  | Gradient l => Derive (moved l) (theta S) end.
Fixpoint dproduct (l : list atom) : R := match l with [] => 1 | x :: l => datom x * dproduct l end.
Fixpoint dside (a : side) : R := match a with [] => 0 | (c, l) :: a => den penv c * dproduct l + dside a end.

Hypothesis par_ok : forall i, par i true <> 0.
Lemma val_ok v r t w : invertible v = true -> val v r t w <> 0.
Proof. destruct v as [[] [] sg|i []|]; cbn; try discriminate; intros _; [apply length_nonzero|apply par_ok]. Qed.
Lemma env_ok w v : invertible v = true -> env w v <> 0. Proof. apply val_ok. Qed.
Lemma penv_ok v : invertible v = true -> penv v <> 0.
Proof. destruct v as [[] [] sg|i []|]; cbn; try discriminate; intros _; [lra|apply par_ok]. Qed.
Lemma env_penv w v : is_par v = true -> env w v = penv v. Proof. now destruct v. Qed.

(* ---------- comparison ---------- *)
Definition mcode (m : measure) : nat := match m with Mq => 0 | Mp => 1 | Mmu => 2 | Mcount => 3 | Msample => 4 end.
Lemma mcode_inj m n : mcode m = mcode n -> m = n. Proof. now destruct m, n. Qed.
Definition pcmp (m n : measure) := Nat.compare (mcode m) (mcode n).
Lemma pcmp_eq m n : pcmp m n = Eq -> m = n.
Proof. intros H. apply Nat.compare_eq in H. now apply mcode_inj. Qed.
Definition icode (i : index) : nat := match i with Single => 0 | Batch => 1 | Pair => 2 | Steps => 3 | BatchSteps => 4 end.
Lemma icode_inj i j : icode i = icode j -> i = j. Proof. now destruct i, j. Qed.
Definition icmp (i j : index) := Nat.compare (icode i) (icode j).
Lemma icmp_eq i j : icmp i j = Eq -> i = j.
Proof. intros H. apply Nat.compare_eq in H. now apply icode_inj. Qed.
Fixpoint gcmp (a b : list gterm) : comparison :=
  match a, b with
  | [], [] => Eq | [], _ => Lt | _, [] => Gt
  | (c, x) :: a, (d, y) :: b => also (ecmp c d) (also
      (match x, y with None, None => Eq | None, _ => Lt | _, None => Gt
       | Some (i, m, e), Some (j, n, f) => also (icmp i j) (also (pcmp m n) (ecmp e f)) end) (gcmp a b))
  end.
Lemma gcmp_eq a b : gcmp a b = Eq -> a = b.
Proof.
  revert b; induction a as [|[c x] a IH]; intros [|[d y] b]; cbn; try discriminate; auto.
  intros H. apply also_eq in H as [A H]. apply also_eq in H as [B H]. apply ecmp_eq in A. subst.
  rewrite (IH _ H). destruct x as [[[i m] e]|], y as [[[j n] f]|]; try discriminate; auto.
  apply also_eq in B as [I B]. apply also_eq in B as [B C].
  apply icmp_eq in I. apply pcmp_eq in B. apply ecmp_eq in C. now subst.
Qed.
Definition acmp (x y : atom) : comparison :=
  match x, y with
  | Mean i m a, Mean j n b | MeanGradient i m a, MeanGradient j n b => also (icmp i j) (also (pcmp m n) (ecmp a b))
  | Gradient a, Gradient b => gcmp a b
  | Mean _ _ _, _ => Lt | _, Mean _ _ _ => Gt
  | MeanGradient _ _ _, _ => Lt | _, MeanGradient _ _ _ => Gt end.
Lemma acmp_eq x y : acmp x y = Eq -> x = y.
Proof.
  destruct x, y; cbn; try discriminate; intros H; try (apply gcmp_eq in H; now subst);
    apply also_eq in H as [A H]; apply also_eq in H as [B H];
    apply icmp_eq in A; apply pcmp_eq in B; apply ecmp_eq in H; now subst.
Qed.
Fixpoint lacmp (a b : list atom) : comparison :=
  match a, b with
  | [], [] => Eq | [], _ => Lt | _, [] => Gt
  | x :: a, y :: b => also (acmp x y) (lacmp a b) end.
Lemma lacmp_eq a b : lacmp a b = Eq -> a = b.
Proof.
  revert b; induction a as [|x a IH]; intros [|y b]; cbn; try discriminate; auto.
  intros H. apply also_eq in H as [A H]. apply acmp_eq in A. subst. f_equal; auto.
Qed.

(* ---------- the normal form ---------- *)
Definition split (t : term) : term * term :=
  let '(c, m, e) := t in
  ((c, filter (fun '(v, _) => is_par v) m, filter (fun '(_, k) => free k) e),
   (1%Q, filter (fun '(v, _) => negb (is_par v)) m, filter (fun '(_, k) => negb (free k)) e)).
Lemma filter_mon x m : dmon (env x) m =
  dmon penv (filter (fun '(v, _) => is_par v) m) * dmon (env x) (filter (fun '(v, _) => negb (is_par v)) m).
Proof.
  induction m as [|[v k] m IH]; cbn [filter dmon]; [ring|]. rewrite IH.
  destruct (is_par v) eqn:P; cbn [negb dmon]; [rewrite (env_penv x v P)|]; ring.
Qed.
Lemma filter_lin x e : dlin (env x) e =
  dlin penv (filter (fun '(_, k) => free k) e) + dlin (env x) (filter (fun '(_, k) => negb (free k)) e).
Proof.
  induction e as [|[c m] e IH]; cbn [filter dlin]; [ring|]. rewrite IH.
  destruct (free m) eqn:F; cbn [negb dlin]; [|ring].
  rewrite (mwithin_ok is_par (env x) penv) by (auto using env_penv). ring.
Qed.
Lemma split_ok x t : dterm (env x) t = dterm penv (fst (split t)) * dterm (env x) (snd (split t)).
Proof.
  destruct t as [[c m] e]. cbn [split fst snd dterm].
  rewrite (filter_mon x m), (filter_lin x e), exp_plus, Q2R_1. ring.
Qed.
Definition gtidy (l : list gterm) : list gterm :=
  map (fun '(c, x) => (tidy c, match x with Some (i, m, a) => Some (i, m, tidy a) | None => None end)) l.
Lemma moving_tidy i m a t : moving i m (tidy a) t = moving i m a t.
Proof. apply mean_at_ext; intros w. apply tidy_ok. intros; now apply val_ok. Qed.
Lemma gtidy_ok l t : moved (gtidy l) t = moved l t.
Proof.
  induction l as [|[c [[[i m] a]|]] l IH]; [reflexivity| |]; cbn [gtidy map moved]; fold (gtidy l).
  - now rewrite IH, moving_tidy, tidy_ok by apply penv_ok.
  - now rewrite IH, tidy_ok by apply penv_ok.
Qed.
Definition expand (x : atom) : list (ep * atom) :=
  match x with
  | Mean i m a => map (fun t => ([fst (split t)], Mean i m [snd (split t)])) (tidy a)
  | MeanGradient i m L => [(one, MeanGradient i m (tidy L))]
  | Gradient l => [(one, Gradient (gtidy l))] end.
Fixpoint dsum (l : list (ep * atom)) : R :=
  match l with [] => 0 | (c, x) :: l => den penv c * datom x + dsum l end.
Lemma expand_ok x : dsum (expand x) = datom x.
Proof.
  destruct x as [i m a|i m L|l]; cbn [expand dsum].
  - transitivity (datom (Mean i m (tidy a))).
    + induction (tidy a) as [|t b IH]; cbn [map dsum].
      * cbn [datom den]. symmetry. apply mean_at_zero.
      * rewrite IH. cbn [datom den]. unfold mean. rewrite <- mean_at_scal, <- mean_at_plus. apply mean_at_ext; intros w.
        rewrite (split_ok w t). ring.
    + apply mean_at_ext; intros w. rewrite tidy_ok by apply env_ok. reflexivity.
  - rewrite one_ok. cbn [datom]. rewrite Rplus_0_r, Rmult_1_l. apply mean_at_ext; intros w.
    apply Derive_ext; intros t. apply tidy_ok. intros; now apply val_ok.
  - rewrite one_ok. cbn [datom]. rewrite Rplus_0_r, Rmult_1_l. apply Derive_ext; intros t. apply gtidy_ok.
Qed.
Fixpoint ains (x : atom) (l : list atom) : list atom :=
  match l with [] => [x] | y :: r => match acmp x y with Gt => y :: ains x r | _ => x :: l end end.
Lemma ains_ok x l : dproduct (ains x l) = datom x * dproduct l.
Proof.
  induction l as [|y l IH]; cbn [ains]; [reflexivity|]. destruct (acmp x y); try reflexivity.
  cbn [dproduct]. rewrite IH; ring.
Qed.
Definition times_atom (c : ep) (x : atom) (a : side) : side := map (fun '(d, l) => (mul c d, ains x l)) a.
Lemma times_atom_ok c x a : dside (times_atom c x a) = den penv c * datom x * dside a.
Proof.
  induction a as [|[d l] a IH]; cbn [times_atom map dside]; [ring|]. fold (times_atom c x a).
  rewrite IH, mul_ok, ains_ok by apply penv_ok. ring.
Qed.
Lemma app_ok a b : dside (a ++ b) = dside a + dside b.
Proof. induction a as [|[d x] a IH]; cbn [app dside]; [ring|rewrite IH; ring]. Qed.
Fixpoint expand_all (l : list atom) : side :=
  match l with
  | [] => [(one, [])]
  | x :: l => let rest := expand_all l in flat_map (fun '(c, y) => times_atom c y rest) (expand x) end.
Lemma expand_all_ok l : dside (expand_all l) = dproduct l.
Proof.
  induction l as [|x l IH]; cbn [expand_all].
  - cbn [dside dproduct]. rewrite one_ok by apply penv_ok; ring.
  - cbn [dproduct]. rewrite <- (expand_ok x), <- IH.
    induction (expand x) as [|[c y] r IH']; cbn [flat_map dsum dside]; [ring|].
    rewrite app_ok, times_atom_ok, IH'. ring.
Qed.
Fixpoint sins (c : ep) (l : list atom) (a : side) : side :=
  match a with
  | [] => if is_zero c then [] else [(c, l)]
  | (d, k) :: a' => match lacmp l k with
      | Lt => if is_zero c then a else (c, l) :: a
      | Eq => let e := add c d in if is_zero e then a' else (e, k) :: a'
      | Gt => (d, k) :: sins c l a' end
  end.
Lemma is_zero_ok e c : is_zero c = true -> den e c = 0. Proof. now destruct c. Qed.
Lemma sins_ok c l a : dside (sins c l a) = den penv c * dproduct l + dside a.
Proof.
  induction a as [|[d k] a IH]; cbn [sins].
  - destruct (is_zero c) eqn:Z; cbn [dside]; [rewrite (is_zero_ok _ _ Z)|]; ring.
  - destruct (lacmp l k) eqn:C; cbn zeta.
    + apply lacmp_eq in C; subst k. pose proof (add_ok penv c d) as A.
      destruct (is_zero (add c d)) eqn:Z; cbn [dside]; [rewrite (is_zero_ok _ _ Z) in A|]; nra.
    + destruct (is_zero c) eqn:Z; cbn [dside]; [rewrite (is_zero_ok _ _ Z)|]; ring.
    + cbn [dside]. rewrite IH; ring.
Qed.
Definition normal (a : side) : side :=
  fold_right (fun '(c, l) acc => fold_right (fun '(d, k) acc => sins (mul (tidy c) d) k acc) acc (expand_all l)) [] a.
Lemma normal_ok a : dside (normal a) = dside a.
Proof.
  induction a as [|[c l] a IH]; cbn [normal fold_right]; [reflexivity|]. fold (normal a).
  cbn [dside]. rewrite <- IH, <- (expand_all_ok l).
  induction (expand_all l) as [|[d k] r IH']; cbn [fold_right dside]; [ring|].
  rewrite sins_ok, IH', mul_ok, tidy_ok by apply penv_ok. ring.
Qed.
Definition is_nil (a : side) : bool := match a with [] => true | _ => false end.
Lemma nil_ok a : is_nil (normal a) = true -> dside a = 0.
Proof. intros H. rewrite <- normal_ok. now destruct (normal a). Qed.

(* ---------- sums and products of sides ---------- *)
Definition sscale (c : ep) (a : side) : side := map (fun '(d, l) => (mul c d, l)) a.
Lemma sscale_ok c a : dside (sscale c a) = den penv c * dside a.
Proof.
  induction a as [|[d l] a IH]; cbn [sscale map dside]; [ring|]. fold (sscale c a).
  rewrite IH, mul_ok by apply penv_ok. ring.
Qed.
Definition minus (a : side) : side := sscale (opp one) a.
Lemma minus_ok a : dside (minus a) = - dside a.
Proof. unfold minus. rewrite sscale_ok, opp_ok, one_ok by apply penv_ok. ring. Qed.
Lemma dproduct_app a b : dproduct (a ++ b) = dproduct a * dproduct b.
Proof. induction a as [|x a IH]; cbn [app dproduct]; [ring|]. rewrite IH; ring. Qed.
Definition stimes (a b : side) : side :=
  flat_map (fun '(c, l) => map (fun '(d, k) => (mul c d, l ++ k)) b) a.
Lemma stimes_ok a b : dside (stimes a b) = dside a * dside b.
Proof.
  induction a as [|[c l] a IH]; cbn [stimes flat_map dside]; [ring|]. fold (stimes a b).
  rewrite app_ok, IH. replace (dside (map _ b)) with (den penv c * dproduct l * dside b); [ring|].
  clear IH. induction b as [|[d k] b IH]; cbn [map dside]; [ring|].
  rewrite <- IH, mul_ok, dproduct_app by apply penv_ok. ring.
Qed.
End Meaning.
