(* Exponential polynomials as data, their value, and their arithmetic, proved sound.

   An element is a list of terms c * m * exp(e), c a rational, m a product of powers, e a polynomial.  Only soundness is
   proved of normal forms: what the checker finds equal is equal. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Setting.
Import ListNotations.
Open Scope R_scope.

Arguments Q2R : simpl never. Arguments Qred : simpl never. Arguments Qplus : simpl never. Arguments Qmult : simpl never.

(* ---------- names ---------- *)
(* In a slot these are sums over its positions; Any is any function of its outcomes. *)
Inductive base := K1 | W | LogQ | Length | Any | Score | Given (i : nat) | Fn (i d : nat) | ToOld.   (* Fn i d: d-th derivative; log q - log old *)
(* A name of the author's own: one of a region does not move with theta at a sample, another does, and has a slope. *)
Inductive case := Still | Moving | Slope.
Inductive var := Sample (z : slot) (b : base) (sg : bool) | Par (i : nat) (nonzero : bool)
| Named (zs : list slot) (i : nat) (c : case) (sg : bool).

(* What may stand in a denominator. *)
Definition invertible (v : var) : bool :=
  match v with Par _ nz => nz | Sample Whole Length _ => true | _ => false end.

Definition bcode (b : base) : nat * nat * nat :=
  match b with
  | K1 => (0, 0, 0) | W => (1, 0, 0) | LogQ => (2, 0, 0) | Length => (3, 0, 0) | Any => (4, 0, 0) | Score => (5, 0, 0)
  | Given i => (6, i, 0) | Fn i d => (7, i, d) | ToOld => (8, 0, 0) end%nat.
Definition ccode (c : case) : nat := match c with Still => 0 | Moving => 1 | Slope => 2 end.
Definition code (v : var) : nat * (nat * nat * nat) * bool :=
  match v with
  | Sample z b sg => (scode z, bcode b, sg) | Par i nz => (8, (i, 0, 0), nz) | Named _ i c sg => (9, (i, ccode c, 0), sg) end%nat.
Definition places_of (v : var) : list nat := match v with Named zs _ _ _ => map scode zs | _ => [] end.
Lemma bcode_inj a b : bcode a = bcode b -> a = b.
Proof. destruct a, b; cbn; intros [=]; subst; reflexivity. Qed.
Lemma slots_inj l k : map scode l = map scode k -> l = k.
Proof.
  revert k; induction l as [|y l IH]; intros [|z k]; try discriminate; [reflexivity|]. cbn [map]. intros H. injection H as H1 H2.
  rewrite (IH _ H2). f_equal. now destruct y, z.
Qed.
Lemma code_inj u v : code u = code v -> places_of u = places_of v -> u = v.
Proof.
  destruct u as [y a sg|i nz|zs i c sg], v as [z b sg'|j nz'|ys j d sg']; cbn; intros H Z;
    try (injection H as H1 H2; now subst); try (now destruct y); try (now destruct z); try discriminate.
  - injection H as H1 H2 H3. apply bcode_inj in H2. subst. now destruct y, z.
  - injection H as H1 H2 H3. apply slots_inj in Z. subst. f_equal. now destruct c, d.
Qed.
Fixpoint ncmp (a b : list nat) : comparison :=
  match a, b with [], [] => Eq | [], _ => Lt | _, [] => Gt
  | x :: a, y :: b => match Nat.compare x y with Eq => ncmp a b | c => c end end.
Lemma ncmp_eq a b : ncmp a b = Eq -> a = b.
Proof.
  revert b; induction a as [|x a IH]; intros [|y b]; cbn [ncmp]; try discriminate; [reflexivity|].
  destruct (Nat.compare x y) eqn:C; try discriminate. apply Nat.compare_eq in C. intros H. now rewrite C, (IH _ H).
Qed.
Definition also (c d : comparison) : comparison := match c with Eq => d | _ => c end.
Lemma also_eq c d : also c d = Eq -> c = Eq /\ d = Eq.
Proof. destruct c; cbn; intros; try discriminate; auto. Qed.
Definition bcmp (a b : bool) := match a, b with false, true => Lt | true, false => Gt | _, _ => Eq end.
Lemma bcmp_eq a b : bcmp a b = Eq -> a = b. Proof. now destruct a, b. Qed.
Definition vcmp (u v : var) : comparison :=
  let '(z, (a, b, c), d) := code u in let '(y, (e, f, g), h) := code v in
  also (Nat.compare z y) (also (Nat.compare a e) (also (Nat.compare b f) (also (Nat.compare c g) (also (bcmp d h)
    (ncmp (places_of u) (places_of v)))))).
Lemma vcmp_eq u v : vcmp u v = Eq -> u = v.
Proof.
  intros H. cut (code u = code v /\ places_of u = places_of v); [intros [C P]; now apply code_inj|]. revert H. unfold vcmp.
  destruct (code u) as [[z [[a b] c]] d], (code v) as [[y [[e f] g]] h]. intros H.
  apply also_eq in H as [Z H]. apply Nat.compare_eq in Z. subst y. apply also_eq in H as [A H]. apply also_eq in H as [B H]. apply also_eq in H as [C H].
  apply also_eq in H as [D H]. apply Nat.compare_eq in A, B, C. apply bcmp_eq in D. apply ncmp_eq in H. now subst.
Qed.

(* ---------- elements ---------- *)
Definition mon := list (var * Z).              (* a product of powers *)
Definition lin := list (Q * mon).              (* a polynomial *)
Definition term := (Q * mon * lin)%type.
Definition ep := list term.

(* A power: negative ones belong to what may stand in a denominator; of all else they are never exported. *)
Definition power (v : var) (x : R) (k : Z) : R := if invertible v then powerRZ x k else x ^ Z.to_nat k.

Section Denote.
Variable env : var -> R.
Hypothesis env_ok : forall v, invertible v = true -> env v <> 0.

Fixpoint dmon (m : mon) : R := match m with [] => 1 | (v, k) :: m => power v (env v) k * dmon m end.
Fixpoint dlin (e : lin) : R := match e with [] => 0 | (c, m) :: e => Q2R c * dmon m + dlin e end.
Definition dterm (t : term) : R := let '(c, m, e) := t in Q2R c * dmon m * exp (dlin e).
Fixpoint den (a : ep) : R := match a with [] => 0 | t :: a => dterm t + den a end.

Definition merges (v : var) (k n : Z) : bool := invertible v || ((0 <=? k)%Z && (0 <=? n)%Z).
Lemma merges_ok v k n : merges v k n = true -> power v (env v) (k + n) = power v (env v) k * power v (env v) n.
Proof.
  unfold merges, power. destruct (invertible v) eqn:I; cbn.
  - intros _. apply powerRZ_add. now apply env_ok.
  - intros H. apply andb_prop in H as [A B]. apply Z.leb_le in A, B.
    rewrite Z2Nat.inj_add by lia. apply pow_add.
Qed.
Fixpoint mins (v : var) (k : Z) (m : mon) : mon :=
  match m with
  | [] => [(v, k)]
  | (u, n) :: m' => match vcmp v u with
      | Lt => (v, k) :: m
      | Eq => if merges v k n then (if (k + n =? 0)%Z then m' else (u, k + n)%Z :: m') else (v, k) :: m
      | Gt => (u, n) :: mins v k m' end
  end.
Lemma power_0 v x : power v x 0 = 1. Proof. unfold power. now destruct (invertible v). Qed.
Lemma mins_ok v k m : dmon (mins v k m) = power v (env v) k * dmon m.
Proof.
  induction m as [|[u n] m IH]; cbn [mins]; [easy|].
  destruct (vcmp v u) eqn:C; cbn [dmon]; [|easy|rewrite IH; ring].
  apply vcmp_eq in C; subst u. destruct (merges v k n) eqn:M; [|easy]. apply merges_ok in M.
  destruct (k + n =? 0)%Z eqn:Z; cbn [dmon].
  - apply Z.eqb_eq in Z. rewrite Z, power_0 in M. rewrite <- Rmult_assoc, <- M. ring.
  - rewrite M; ring.
Qed.
Definition mmul (a b : mon) : mon := fold_right (fun '(v, k) m => mins v k m) b a.
Lemma mmul_ok a b : dmon (mmul a b) = dmon a * dmon b.
Proof. induction a as [|[v k] a IH]; cbn; [ring|]. fold (mmul a b). rewrite mins_ok, IH; ring. Qed.

Fixpoint mcmp (a b : mon) : comparison :=
  match a, b with
  | [], [] => Eq | [], _ => Lt | _, [] => Gt
  | (u, k) :: a, (v, n) :: b => also (vcmp u v) (also (Z.compare k n) (mcmp a b))
  end.
Lemma mcmp_eq a b : mcmp a b = Eq -> a = b.
Proof.
  revert b; induction a as [|[u k] a IH]; intros [|[v n] b]; cbn; try discriminate; auto.
  intros H. apply also_eq in H as [A H]. apply also_eq in H as [B H].
  apply vcmp_eq in A. apply Z.compare_eq in B. subst. f_equal; auto.
Qed.

Definition qz (c : Q) : bool := Z.eqb (Qnum c) 0.
Lemma qz_ok c : qz c = true -> Q2R c = 0.
Proof. unfold qz, Q2R. intros H. apply Z.eqb_eq in H. rewrite H. simpl. ring. Qed.
Lemma Q2R_red a : Q2R (Qred a) = Q2R a. Proof. apply Qeq_eqR, Qred_correct. Qed.
Lemma sum_zero c d : qz (Qred (c + d)) = true -> Q2R d = - Q2R c.
Proof. intros Z. apply qz_ok in Z. rewrite Q2R_red, Q2R_plus in Z. lra. Qed.

Fixpoint lins (c : Q) (m : mon) (e : lin) : lin :=
  match e with
  | [] => if qz c then [] else [(c, m)]
  | (d, k) :: e' => match mcmp m k with
      | Lt => if qz c then e else (c, m) :: e
      | Eq => let s := Qred (c + d) in if qz s then e' else (s, k) :: e'
      | Gt => (d, k) :: lins c m e' end
  end.
Lemma lins_ok c m e : dlin (lins c m e) = Q2R c * dmon m + dlin e.
Proof.
  induction e as [|[d k] e IH]; cbn [lins].
  - destruct (qz c) eqn:Z; cbn [dlin]; [rewrite (qz_ok _ Z)|]; ring.
  - destruct (mcmp m k) eqn:C; cbn zeta.
    + apply mcmp_eq in C; subst k. destruct (qz (Qred (c + d))) eqn:Z; cbn [dlin].
      * rewrite (sum_zero _ _ Z); ring.
      * rewrite Q2R_red, Q2R_plus; ring.
    + destruct (qz c) eqn:Z; cbn [dlin]; [rewrite (qz_ok _ Z)|]; ring.
    + cbn [dlin]. rewrite IH; ring.
Qed.
Definition ladd (a b : lin) : lin := fold_right (fun '(c, m) e => lins c m e) b a.
Lemma ladd_ok a b : dlin (ladd a b) = dlin a + dlin b.
Proof. induction a as [|[c m] a IH]; cbn; [ring|]. fold (ladd a b). rewrite lins_ok, IH; ring. Qed.

Definition qcmp (c d : Q) := also (Z.compare (Qnum c) (Qnum d)) (Pos.compare (Qden c) (Qden d)).
Lemma qcmp_eq c d : qcmp c d = Eq -> c = d.
Proof.
  intros H. apply also_eq in H as [A B]. apply Z.compare_eq in A. apply Pos.compare_eq in B.
  destruct c, d; cbn in *; now subst.
Qed.
Fixpoint lcmp (a b : lin) : comparison :=
  match a, b with
  | [], [] => Eq | [], _ => Lt | _, [] => Gt
  | (c, m) :: a, (d, k) :: b => also (mcmp m k) (also (qcmp c d) (lcmp a b))
  end.
Lemma lcmp_eq a b : lcmp a b = Eq -> a = b.
Proof.
  revert b; induction a as [|[c m] a IH]; intros [|[d k] b]; cbn; try discriminate; auto.
  intros H. apply also_eq in H as [A H]. apply also_eq in H as [B H].
  apply mcmp_eq in A. apply qcmp_eq in B. subst. f_equal; auto.
Qed.
Definition kcmp (m k : mon) (e f : lin) := also (mcmp m k) (lcmp e f).
Lemma kcmp_eq m k e f : kcmp m k e f = Eq -> m = k /\ e = f.
Proof. intros H. apply also_eq in H as [A B]. now apply mcmp_eq in A; apply lcmp_eq in B. Qed.
Fixpoint ins (t : term) (a : ep) : ep :=
  let '(c, m, e) := t in
  match a with
  | [] => if qz c then [] else [t]
  | (d, k, f) :: a' => match kcmp m k e f with
      | Lt => if qz c then a else t :: a
      | Eq => let s := Qred (c + d) in if qz s then a' else (s, k, f) :: a'
      | Gt => (d, k, f) :: ins t a' end
  end.
Lemma ins_ok t a : den (ins t a) = dterm t + den a.
Proof.
  destruct t as [[c m] e]. induction a as [|[[d k] f] a IH]; cbn [ins].
  - destruct (qz c) eqn:Z; cbn [den dterm]; [rewrite (qz_ok _ Z)|]; ring.
  - destruct (kcmp m k e f) eqn:C; cbn zeta.
    + apply kcmp_eq in C as [-> ->]. destruct (qz (Qred (c + d))) eqn:Z; cbn [den dterm].
      * rewrite (sum_zero _ _ Z); ring.
      * rewrite Q2R_red, Q2R_plus; ring.
    + destruct (qz c) eqn:Z; cbn [den dterm]; [rewrite (qz_ok _ Z)|]; ring.
    + cbn [den]. rewrite IH; ring.
Qed.
Definition add (a b : ep) : ep := fold_right ins b a.
Lemma add_ok a b : den (add a b) = den a + den b.
Proof. induction a as [|t a IH]; cbn; [ring|]. fold (add a b). rewrite ins_ok, IH; ring. Qed.
Definition tmul (s t : term) : term :=
  let '(c, m, e) := s in let '(d, k, f) := t in (Qred (c * d), mmul m k, ladd e f).
Lemma tmul_ok s t : dterm (tmul s t) = dterm s * dterm t.
Proof.
  destruct s as [[c m] e], t as [[d k] f]; cbn [tmul dterm].
  rewrite Q2R_red, Q2R_mult, mmul_ok, ladd_ok, exp_plus; ring.
Qed.
Definition scale (s : term) (a : ep) : ep := fold_right (fun t b => ins (tmul s t) b) [] a.
Lemma scale_ok s a : den (scale s a) = dterm s * den a.
Proof. induction a as [|t a IH]; cbn; [ring|]. fold (scale s a). rewrite ins_ok, tmul_ok, IH; ring. Qed.
Definition mul (a b : ep) : ep := fold_right (fun s c => add (scale s b) c) [] a.
Lemma mul_ok a b : den (mul a b) = den a * den b.
Proof. induction a as [|s a IH]; cbn; [ring|]. fold (mul a b). rewrite add_ok, scale_ok, IH; ring. Qed.
Definition konst (c : Q) : ep := [(c, [], [])].
Definition one : ep := konst 1.
Definition opp (a : ep) : ep := scale ((-1)%Q, [], []) a.
Definition var_ (v : var) : ep := [(1%Q, [(v, 1%Z)], [])].
Definition exp_ (e : lin) : ep := [(1%Q, [], e)].
Lemma Q2R_1 : Q2R 1 = 1. Proof. unfold Q2R; simpl; field. Qed.
Lemma Q2R_m1 : Q2R (-1) = -1. Proof. unfold Q2R; simpl; field. Qed.
Lemma konst_ok c : den (konst c) = Q2R c. Proof. cbn. rewrite exp_0; ring. Qed.
Lemma one_ok : den one = 1. Proof. unfold one. rewrite konst_ok. apply Q2R_1. Qed.
Lemma opp_ok a : den (opp a) = - den a.
Proof. unfold opp; rewrite scale_ok. cbn [dterm dmon dlin]. rewrite exp_0, Q2R_m1; ring. Qed.
Lemma power_1 v x : power v x 1 = x. Proof. unfold power. destruct (invertible v); [apply powerRZ_1|simpl; ring]. Qed.
Lemma var_ok v : den (var_ v) = env v.
Proof. cbn. rewrite power_1, exp_0, Q2R_1; ring. Qed.
Lemma exp_ok e : den (exp_ e) = exp (dlin e).
Proof. cbn. rewrite Q2R_1; ring. Qed.
Definition sub a b := add a (opp b).
Lemma sub_ok a b : den (sub a b) = den a - den b.
Proof. unfold sub; rewrite add_ok, opp_ok; ring. Qed.

(* ---------- a normal form, and renaming ---------- *)
Definition mmap (f : var -> var) (m : mon) : mon :=
  fold_right (fun '(v, k) acc => if (k =? 0)%Z then acc else mins (f v) k acc) [] m.
Definition lmap f (e : lin) : lin := fold_right (fun '(c, m) acc => lins (Qred c) (mmap f m) acc) [] e.
Definition emap f (a : ep) : ep := fold_right (fun '(c, m, e) acc => ins (Qred c, mmap f m, lmap f e) acc) [] a.
Section Map.
Variable f : var -> var.
Hypothesis f_env : forall v, env (f v) = env v.
Hypothesis f_inv : forall v, invertible (f v) = invertible v.
Lemma mmap_ok m : dmon (mmap f m) = dmon m.
Proof.
  induction m as [|[v k] m IH]; cbn; [easy|]. fold (mmap f m). destruct (k =? 0)%Z eqn:Z.
  - apply Z.eqb_eq in Z; subst. rewrite IH, power_0; ring.
  - rewrite mins_ok, IH. f_equal. unfold power. now rewrite f_env, f_inv.
Qed.
Lemma lmap_ok e : dlin (lmap f e) = dlin e.
Proof.
  induction e as [|[c m] e IH]; cbn; [easy|]. fold (lmap f e). now rewrite lins_ok, IH, mmap_ok, Q2R_red.
Qed.
Lemma emap_ok a : den (emap f a) = den a.
Proof.
  induction a as [|[[c m] e] a IH]; cbn [emap fold_right]; [easy|]. fold (emap f a).
  rewrite ins_ok, IH. cbn [den dterm]. now rewrite mmap_ok, lmap_ok, Q2R_red.
Qed.
End Map.
Definition tidy : ep -> ep := emap (fun v => v).
Lemma tidy_ok a : den (tidy a) = den a. Proof. now apply emap_ok. Qed.

Definition is_zero (a : ep) : bool := match a with [] => true | _ => false end.
Definition equal (a b : ep) : bool := is_zero (sub (tidy a) (tidy b)).
Lemma equal_ok a b : equal a b = true -> den a = den b.
Proof.
  unfold equal. intros H. assert (Z : den (sub (tidy a) (tidy b)) = 0) by now destruct (sub _ _).
  rewrite sub_ok, !tidy_ok in Z. lra.
Qed.

(* exp of a polynomial *)
Fixpoint polynomial (a : ep) : option lin :=
  match a with
  | [] => Some []
  | (c, m, []) :: a => match polynomial a with Some e => Some ((c, m) :: e) | None => None end
  | _ => None end.
Lemma polynomial_ok a e : polynomial a = Some e -> dlin e = den a.
Proof.
  revert e; induction a as [|[[c m] [|]] a IH]; intros e; cbn [polynomial]; try discriminate.
  - now intros [= <-].
  - destruct (polynomial a); [|discriminate]. intros [= <-]. cbn [dlin den dterm]. cbn [dlin].
    rewrite exp_0, (IH _ eq_refl); ring.
Qed.
End Denote.

Fixpoint ecmp (a b : ep) : comparison :=
  match a, b with
  | [], [] => Eq | [], _ => Lt | _, [] => Gt
  | (c, m, e) :: a, (d, k, f) :: b => also (kcmp m k e f) (also (qcmp c d) (ecmp a b))
  end.
Lemma ecmp_eq a b : ecmp a b = Eq -> a = b.
Proof.
  revert b; induction a as [|[[c m] e] a IH]; intros [|[[d k] f] b]; cbn; try discriminate; auto.
  intros H. apply also_eq in H as [A H]. apply also_eq in H as [B H].
  apply kcmp_eq in A as [-> ->]. apply qcmp_eq in B. subst. f_equal; auto.
Qed.

(* ---------- elements in some of the variables alone ---------- *)
Section Within.
Variable ok : var -> bool.
Definition mwithin (m : mon) : bool := forallb (fun '(v, _) => ok v) m.
Definition lwithin (e : lin) : bool := forallb (fun '(_, k) => mwithin k) e.
Definition within (a : ep) : bool := forallb (fun '(_, m, e) => mwithin m && lwithin e) a.
Variables env env' : var -> R.
Hypothesis same : forall v, ok v = true -> env v = env' v.
Lemma mwithin_ok m : mwithin m = true -> dmon env m = dmon env' m.
Proof.
  induction m as [|[v k] m IH]; [easy|]. cbn [mwithin forallb dmon]. intros H.
  apply andb_prop in H as [A B]. now rewrite IH, same.
Qed.
Lemma lwithin_ok e : lwithin e = true -> dlin env e = dlin env' e.
Proof.
  induction e as [|[c m] e IH]; [easy|]. cbn [lwithin forallb dlin]. intros H.
  apply andb_prop in H as [A B]. now rewrite IH, mwithin_ok.
Qed.
Lemma within_ok a : within a = true -> den env a = den env' a.
Proof.
  induction a as [|[[c m] e] a IH]; [easy|]. cbn [within forallb den dterm]. intros H.
  apply andb_prop in H as [H B]. apply andb_prop in H as [A C].
  now rewrite IH, mwithin_ok, lwithin_ok.
Qed.
End Within.
Lemma within_weaker (f g : var -> bool) a : (forall v, f v = true -> g v = true) -> within f a = true -> within g a = true.
Proof.
  intros H. assert (M : forall m, mwithin f m = true -> mwithin g m = true).
  { induction m as [|[v k] m IH]; [easy|]. cbn [mwithin forallb]. intros W. apply andb_prop in W as [W1 W2].
    apply andb_true_intro. split; [now apply H|now apply IH]. }
  induction a as [|[[c m] e] a IH]; [easy|]. cbn [within forallb]. intros W. apply andb_prop in W as [W B]. apply andb_prop in W as [A C].
  apply andb_true_intro. split; [apply andb_true_intro; split; [now apply M|]|now apply IH].
  clear A B IH. induction e as [|[d k] e IH]; [easy|]. cbn [lwithin forallb] in *. apply andb_prop in C as [C1 C2].
  apply andb_true_intro. split; [now apply M|now apply IH].
Qed.
Lemma den_ext env env' a : (forall v, env v = env' v) -> den env a = den env' a.
Proof.
  intros H. assert (M : forall m, dmon env m = dmon env' m) by (induction m as [|[v k] m I]; cbn [dmon]; [easy|now rewrite I, H]).
  assert (N : forall e, dlin env e = dlin env' e) by (induction e as [|[c m] e I]; cbn [dlin]; [easy|now rewrite I, M]).
  induction a as [|[[c m] e] a I]; cbn [den dterm]; [easy|]. now rewrite I, M, N.
Qed.
(* constants: parameters alone *)
Definition is_par (v : var) : bool := match v with Par _ _ => true | _ => false end.
Definition free : mon -> bool := mwithin is_par.
Definition constant : ep -> bool := within is_par.

(* ---------- substitution ---------- *)
Section Substitution.
Variable put : var -> option ep.
Definition kept (v : var) : bool := match put v with None => true | _ => false end.
Fixpoint epow (a : ep) (n : nat) : ep := match n with O => one | S n => mul a (epow a n) end.
Fixpoint msubst (m : mon) : ep :=
  match m with
  | [] => one
  | (v, k) :: m => mul (match put v with Some a => epow a (Z.to_nat k) | None => [(1%Q, [(v, k)], [])] end) (msubst m)
  end.
(* none of what is replaced may stand in an exponent *)
Definition no_exponent (a : ep) : bool := forallb (fun '(_, _, e) => lwithin kept e) a.
Definition subst (a : ep) : option ep :=
  if no_exponent a
  then Some (fold_right (fun '(c, m, e) acc => add (scale (c, [], e) (msubst m)) acc) [] a) else None.
Variable env : var -> R.
Hypothesis env_ok : forall v, invertible v = true -> env v <> 0.
Variable before : var -> R.
Hypothesis before_ok : forall v, before v = match put v with Some a => den env a | None => env v end.
Hypothesis put_inv : forall v a, put v = Some a -> invertible v = false.
Lemma epow_ok a n : den env (epow a n) = den env a ^ n.
Proof. induction n as [|n IH]; cbn [epow pow]; [now apply one_ok|]. now rewrite mul_ok, IH. Qed.
Lemma msubst_ok m : den env (msubst m) = dmon before m.
Proof.
  induction m as [|[v k] m IH]; cbn [msubst dmon]; [now apply one_ok|].
  rewrite mul_ok, IH, before_ok by exact env_ok. f_equal. destruct (put v) as [a|] eqn:V.
  - rewrite epow_ok. unfold power. now rewrite (put_inv v a V).
  - cbn [den dterm dmon dlin]. rewrite exp_0, Q2R_1. ring.
Qed.
Lemma subst_ok a b : subst a = Some b -> den env b = den before a.
Proof.
  unfold subst. destruct (no_exponent a) eqn:F; [|discriminate]. intros H. injection H as <-.
  induction a as [|[[c m] e] a IH]; cbn [fold_right]; [reflexivity|]. cbn [no_exponent forallb] in F.
  apply andb_prop in F as [F1 F2]. rewrite add_ok, scale_ok, msubst_ok, IH by assumption. cbn [den dterm dmon].
  rewrite (lwithin_ok kept env before) with (e := e); [ring| |exact F1].
  intros v K. rewrite before_ok. unfold kept in K. now destruct (put v).
Qed.
End Substitution.

(* ---------- derivations ---------- *)
(* The derivative of a variable is a product of powers; of what is not named it is 0. *)
Section Slopes.
Variable slope : var -> option mon.
Fixpoint dm (m : mon) : lin :=
  match m with
  | [] => []
  | (v, k) :: m' =>
      match slope v with
      | Some d => [(inject_Z (Z.of_nat (Z.to_nat k)), mmul [(v, Z.of_nat (pred (Z.to_nat k)))] (mmul d m'))]
      | None => [] end
      ++ map (fun '(c, n) => (c, (v, k) :: n)) (dm m')
  end.
Definition dl (e : lin) : lin := flat_map (fun '(c, m) => map (fun '(d, k) => ((c * d)%Q, k)) (dm m)) e.
Definition dt (t : term) : ep :=
  let '(c, m, e) := t in
  map (fun '(d, k) => ((c * d)%Q, k, e)) (dm m) ++ map (fun '(d, k) => ((c * d)%Q, mmul m k, e)) (dl e).
Definition derive_by (a : ep) : ep := tidy (flat_map dt a).
End Slopes.
(* d/dt: the score function of the slot for k1, w, log q, times f' for f at a slot of one position *)
Definition score (z : slot) : var := Sample z Score false.
Definition slope (v : var) : option mon :=
  match v with
  | Sample z (K1 | W | LogQ | ToOld) false => Some [(score z, 1%Z)]
  | Sample z (Fn i d) false =>
      if one_position z then Some [(score z, 1%Z); (Sample z (Fn i (S d)) false, 1%Z)] else None
  | Named zs i Moving false => Some [(Named zs i Slope false, 1%Z)]
  | _ => None end.
Definition derivative : ep -> ep := derive_by slope.
Lemma slope_inv v d : slope v = Some d -> invertible v = false.
Proof. destruct v as [[] []| |? ? []]; cbn; congruence. Qed.

Section Derivation.
Variable slope : var -> option mon.
Hypothesis slope_not_invertible : forall v d, slope v = Some d -> invertible v = false.
Variable f : var -> R -> R.           (* each variable along a coordinate *)
Variable x : R.
Notation e0 := (fun v => f v x).
Hypothesis f_ok : forall v l, invertible v = true -> f v l <> 0.
Hypothesis f_slope : forall v, is_derive (f v) x (match slope v with Some d => dmon e0 d | None => 0 end).
Let e0_ok : forall v, invertible v = true -> e0 v <> 0. Proof. intros; now apply f_ok. Qed.

Lemma dlin_app env a b : dlin env (a ++ b) = dlin env a + dlin env b.
Proof. induction a as [|[c m] a IH]; cbn; [ring|rewrite IH; ring]. Qed.
Lemma den_app env a b : den env (a ++ b) = den env a + den env b.
Proof. induction a as [|t a IH]; cbn [app den]; [ring|rewrite IH; ring]. Qed.
Lemma dcons env v k l : dlin env (map (fun '(c, n) => (c, (v, k) :: n)) l) = power v (env v) k * dlin env l.
Proof. induction l as [|[c n] l IH]; cbn; [ring|rewrite IH; ring]. Qed.
Lemma Q2R_nat n : Q2R (inject_Z (Z.of_nat n)) = INR n.
Proof. rewrite INR_IZR_INZ. unfold Q2R; simpl; field. Qed.
Lemma power_derive v k d : slope v = Some d ->
  is_derive (fun l => power v (f v l) k) x (INR (Z.to_nat k) * (f v x ^ pred (Z.to_nat k) * dmon e0 d)).
Proof.
  intros D. pose proof (slope_not_invertible v d D) as I.
  unfold power. rewrite I. pose proof (f_slope v) as F. rewrite D in F.
  pose proof (is_derive_pow (f v) (Z.to_nat k) x _ F) as P.
  replace (INR _ * _) with (INR (Z.to_nat k) * dmon e0 d * f v x ^ pred (Z.to_nat k)) by ring. exact P.
Qed.
Lemma power_still v k : slope v = None -> is_derive (fun l => power v (f v l) k) x 0.
Proof.
  intros D. pose proof (f_slope v) as F. rewrite D in F. unfold power.
  destruct (invertible v) eqn:I.
  - pose proof (f_ok v x I) as N. destruct k as [|n|n]; cbn.
    + apply derive_const.
    + pose proof (is_derive_pow (f v) (Pos.to_nat n) x _ F) as P.
      replace 0 with (INR (Pos.to_nat n) * 0 * f v x ^ pred (Pos.to_nat n)) by ring. exact P.
    + pose proof (is_derive_pow (f v) (Pos.to_nat n) x _ F) as P.
      pose proof (is_derive_inv (fun l => f v l ^ Pos.to_nat n) x _ P (pow_nonzero _ _ N)) as V.
      replace 0 with (- (INR (Pos.to_nat n) * 0 * f v x ^ pred (Pos.to_nat n)) / (f v x ^ Pos.to_nat n) ^ 2).
      * exact V.
      * field. now apply pow_nonzero.
  - pose proof (is_derive_pow (f v) (Z.to_nat k) x _ F) as P.
    replace 0 with (INR (Z.to_nat k) * 0 * f v x ^ pred (Z.to_nat k)) by ring. exact P.
Qed.
Lemma power_nat v y n : invertible v = false -> power v y (Z.of_nat n) = y ^ n.
Proof. intros I. unfold power. now rewrite I, Nat2Z.id. Qed.
Lemma dm_ok m : is_derive (fun l => dmon (fun v => f v l) m) x (dlin e0 (dm slope m)).
Proof.
  induction m as [|[v k] m IH]; cbn [dm dmon].
  - apply derive_const.
  - rewrite dlin_app, dcons. destruct (slope v) as [d|] eqn:D.
    + pose proof (derive_mult _ _ _ _ _ (power_derive v k d D) IH) as M. cbn [dlin].
      rewrite !mmul_ok by exact e0_ok. cbn [dmon]. rewrite Q2R_nat.
      match type of M with is_derive _ _ ?a => match goal with |- is_derive _ _ ?b => replace b with a; [exact M|] end end.
      rewrite (power_nat v _ _ (slope_not_invertible v d D)). ring.
    + pose proof (derive_mult _ _ _ _ _ (power_still v k D) IH) as M. cbn [dlin].
      match type of M with is_derive _ _ ?a => match goal with |- is_derive _ _ ?b => replace b with a; [exact M|] end end.
      ring.
Qed.
Lemma dscale env c l : dlin env (map (fun '(d, k) => ((c * d)%Q, k)) l) = Q2R c * dlin env l.
Proof. induction l as [|[d k] l IH]; cbn; [ring|rewrite IH, Q2R_mult; ring]. Qed.
Lemma dl_ok e : is_derive (fun l => dlin (fun v => f v l) e) x (dlin e0 (dl slope e)).
Proof.
  induction e as [|[c m] e IH]; cbn [dl flat_map dlin].
  - apply derive_const.
  - fold (dl slope e). rewrite dlin_app, dscale. apply derive_plus; [apply derive_scal, dm_ok|exact IH].
Qed.
Lemma d1 env c e l : den env (map (fun '(d, k) => ((c * d)%Q, k, e)) l) = Q2R c * exp (dlin env e) * dlin env l.
Proof. induction l as [|[d k] l IH]; cbn [map den dterm dlin]; [ring|rewrite IH, Q2R_mult; ring]. Qed.
Lemma d2 c m e l :
  den e0 (map (fun '(d, k) => ((c * d)%Q, mmul m k, e)) l) = Q2R c * dmon e0 m * exp (dlin e0 e) * dlin e0 l.
Proof.
  induction l as [|[d k] l IH]; cbn [map den dterm dlin]; [ring|].
  rewrite IH, Q2R_mult, mmul_ok by exact e0_ok. ring.
Qed.
Lemma dt_ok t : is_derive (fun l => dterm (fun v => f v l) t) x (den e0 (dt slope t)).
Proof.
  destruct t as [[c m] e]. unfold dt. rewrite den_app, d1, d2. cbn [dterm].
  pose proof (derive_mult _ _ _ _ _ (derive_scal _ (Q2R c) _ _ (dm_ok m)) (derive_exp _ _ _ (dl_ok e))) as M.
  match type of M with is_derive _ _ ?a => match goal with |- is_derive _ _ ?b => replace b with a; [exact M|] end end.
  ring.
Qed.
Theorem derive_by_ok a : is_derive (fun l => den (fun v => f v l) a) x (den e0 (derive_by slope a)).
Proof.
  unfold derive_by. rewrite tidy_ok by exact e0_ok. induction a as [|t a IH]; cbn [flat_map den].
  - apply derive_const.
  - rewrite den_app. apply derive_plus; [apply dt_ok|exact IH].
Qed.
End Derivation.
