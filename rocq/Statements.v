(* What a theorem on one sample says, as data, and what that means; the normal form of a side.

   A side is a sum of products of atoms with constant coefficients.  In the normal form each mean is written over
   the products of powers that occur in it: E_m[2 lam k1 s + s] is 2 lam E_m[k1 s] + E_m[s]. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Setting Ring.
Import ListNotations.
Open Scope R_scope.

Definition gterm := (ep * option (measure * ep))%type.   (* c E_m[a], or a constant c *)
Inductive atom :=
| Mean (m : measure) (a : ep) (scores : nat)   (* E_m[a s..s] *)
| MeanGradient (m : measure) (L : ep)          (* E_m[grad L] *)
| Gradient (side : list gterm).                (* grad of a linear combination of means *)
Definition side := list (ep * list atom).

Section Meaning.
Variable S : setting.
Variable par : nat -> bool -> R.     (* par i true: a parameter that is not 0 *)
Notation X := (outcome S).

Definition val (v : var) (l f : R) (x : X) : R :=
  match v with
  | Sample K1 sg => k1_at S (if sg then f else l) x
  | Sample W sg => w_at S (if sg then f else l) x
  | Sample LogQ sg => if sg then f else l
  | Sample Length _ => length S x
  | Sample (Given i) _ => given S i x
  | Sample (Fn i d) sg => fn S i d (if sg then f else l) x
  | Par i nz => par i nz end.
Definition as_loss (a : ep) : loss S := fun l f x => den (fun v => val v l f x) a.
Definition env (x : X) (v : var) : R := val v (ln (q0 S x)) (ln (q0 S x)) x.
Definition penv (v : var) : R := match v with Par i nz => par i nz | _ => 1 end.

Definition moving (m : measure) (a : ep) (t : R) : R :=
  E S m t (fun x => as_loss a (ln (q S t x)) (ln (q0 S x)) x).
Fixpoint moved (l : list gterm) (t : R) : R :=
  match l with
  | [] => 0
  | (c, Some (m, a)) :: l => den penv c * moving m a t + moved l t
  | (c, None) :: l => den penv c + moved l t end.
Definition datom (x : atom) : R :=
  match x with
  | Mean m a k => mean S m (fun x => den (env x) a * s S x ^ k)
  | MeanGradient m L => mean S m (grad S (as_loss L))
  | Gradient l => Derive (moved l) (theta S) end.
Fixpoint dproduct (l : list atom) : R := match l with [] => 1 | x :: l => datom x * dproduct l end.
Fixpoint dside (a : side) : R := match a with [] => 0 | (c, l) :: a => den penv c * dproduct l + dside a end.

Hypothesis par_ok : forall i, par i true <> 0.
Lemma val_ok v l f x : invertible v = true -> val v l f x <> 0.
Proof. destruct v as [[] sg|i []]; cbn; try discriminate; intros _; [apply length_nonzero|apply par_ok]. Qed.
Lemma env_ok x v : invertible v = true -> env x v <> 0. Proof. apply val_ok. Qed.
Lemma penv_ok v : invertible v = true -> penv v <> 0.
Proof. destruct v as [[] sg|i []]; cbn; try discriminate; intros _; [lra|apply par_ok]. Qed.
Lemma env_penv x v : is_par v = true -> env x v = penv v. Proof. now destruct v. Qed.

(* ---------- comparison ---------- *)
Definition mcode (m : measure) : nat := match m with Mq => 0 | Mp => 1 | Mmu => 2 | Mcount => 3 | Msample => 4 end.
Lemma mcode_inj m n : mcode m = mcode n -> m = n. Proof. now destruct m, n. Qed.
Definition pcmp (m n : measure) := Nat.compare (mcode m) (mcode n).
Lemma pcmp_eq m n : pcmp m n = Eq -> m = n.
Proof. intros H. apply Nat.compare_eq in H. now apply mcode_inj. Qed.
Fixpoint gcmp (a b : list gterm) : comparison :=
  match a, b with
  | [], [] => Eq | [], _ => Lt | _, [] => Gt
  | (c, x) :: a, (d, y) :: b => also (ecmp c d) (also
      (match x, y with None, None => Eq | None, _ => Lt | _, None => Gt
       | Some (m, e), Some (n, f) => also (pcmp m n) (ecmp e f) end) (gcmp a b))
  end.
Lemma gcmp_eq a b : gcmp a b = Eq -> a = b.
Proof.
  revert b; induction a as [|[c x] a IH]; intros [|[d y] b]; cbn; try discriminate; auto.
  intros H. apply also_eq in H as [A H]. apply also_eq in H as [B H]. apply ecmp_eq in A. subst.
  rewrite (IH _ H). destruct x as [[m e]|], y as [[n f]|]; try discriminate; auto.
  apply also_eq in B as [B C]. apply pcmp_eq in B. apply ecmp_eq in C. now subst.
Qed.
Definition acmp (x y : atom) : comparison :=
  match x, y with
  | Mean m a k, Mean n b j => also (pcmp m n) (also (Nat.compare k j) (ecmp a b))
  | MeanGradient m a, MeanGradient n b => also (pcmp m n) (ecmp a b)
  | Gradient a, Gradient b => gcmp a b
  | Mean _ _ _, _ => Lt | _, Mean _ _ _ => Gt
  | MeanGradient _ _, _ => Lt | _, MeanGradient _ _ => Gt end.
Lemma acmp_eq x y : acmp x y = Eq -> x = y.
Proof.
  destruct x, y; cbn; try discriminate; intros H.
  - apply also_eq in H as [A H]. apply also_eq in H as [B H].
    apply pcmp_eq in A. apply Nat.compare_eq in B. apply ecmp_eq in H. now subst.
  - apply also_eq in H as [A H]. apply pcmp_eq in A. apply ecmp_eq in H. now subst.
  - apply gcmp_eq in H. now subst.
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
  map (fun '(c, x) => (tidy c, match x with Some (m, a) => Some (m, tidy a) | None => None end)) l.
Lemma moving_tidy m a t : moving m (tidy a) t = moving m a t.
Proof. apply E_ext; intros x. apply tidy_ok. intros; now apply val_ok. Qed.
Lemma gtidy_ok l t : moved (gtidy l) t = moved l t.
Proof.
  induction l as [|[c [[m a]|]] l IH]; [reflexivity| |]; cbn [gtidy map moved]; fold (gtidy l).
  - now rewrite IH, moving_tidy, tidy_ok by apply penv_ok.
  - now rewrite IH, tidy_ok by apply penv_ok.
Qed.
Definition expand (x : atom) : list (ep * atom) :=
  match x with
  | Mean m a k => map (fun t => ([fst (split t)], Mean m [snd (split t)] k)) (tidy a)
  | MeanGradient m L => [(one, MeanGradient m (tidy L))]
  | Gradient l => [(one, Gradient (gtidy l))] end.
Fixpoint dsum (l : list (ep * atom)) : R :=
  match l with [] => 0 | (c, x) :: l => den penv c * datom x + dsum l end.
Lemma expand_ok x : dsum (expand x) = datom x.
Proof.
  destruct x as [m a k|m L|l]; cbn [expand dsum].
  - transitivity (datom (Mean m (tidy a) k)).
    + induction (tidy a) as [|t b IH]; cbn [map dsum].
      * cbn [datom den]. symmetry. unfold mean. rewrite (E_ext S m _ _ (fun _ => 0)) by (intros; ring).
        apply E_zero.
      * rewrite IH. cbn [datom den]. unfold mean. rewrite <- E_scal, <- E_plus. apply E_ext; intros x.
        rewrite (split_ok x t). ring.
    + apply E_ext; intros x. rewrite tidy_ok by apply env_ok. reflexivity.
  - rewrite one_ok. cbn [datom]. rewrite Rplus_0_r, Rmult_1_l. apply E_ext; intros x.
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
